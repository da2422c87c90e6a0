"""Figures of an evaluation: pass@k by its definition, intervals that hold as often as they say, noise that is called so."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from stitchcuda.training.evaluation.figures import difference, interval, mean, pass_at


@pytest.mark.parametrize(("n", "c", "k"), [(5, 2, 1), (5, 2, 3), (6, 1, 6), (4, 0, 2), (4, 4, 1), (7, 3, 5)])
def test_pass_at_k_is_the_share_of_all_choices_of_k_answers_with_a_correct_one(n: int, c: int, k: int) -> None:
    answers = [1.0] * c + [0.0] * (n - c)
    chosen = [max(choice) for choice in itertools.combinations(answers, k)]
    assert pass_at(k)(np.array([answers]))[0] == pytest.approx(sum(chosen) / len(chosen))


def test_answers_that_were_not_judged_have_no_part() -> None:
    values = np.array([[1.0, 0.0, np.nan, np.nan], [np.nan] * 4, [1.0, np.nan, np.nan, np.nan]])
    assert mean(values)[[0, 2]].tolist() == [0.5, 1.0]
    assert np.isnan(mean(values)[1])
    assert np.isnan(pass_at(2)(values)[[1, 2]]).all()
    found = interval(values, ["a", "b", "c"], mean)
    assert (found.value, found.problems) == (0.75, 2)
    assert interval(values[1:2], ["b"], mean).value is None
    assert difference(values, values[[1, 0, 1]], ["a", "b", "c"], mean).value is None


def sample(draw: np.random.Generator, problems: int, seeds: int, gain: float = 0.0) -> np.ndarray:
    chances = np.clip(draw.beta(1, 2, problems) + gain, 0, 1)
    return (draw.random((problems, seeds)) < chances[:, None]).astype(float)


def test_an_interval_holds_the_true_figure_about_as_often_as_it_says() -> None:
    draw = np.random.default_rng(1)
    held = 0
    for _ in range(60):
        found = interval(sample(draw, 30, 3), [str(number) for number in range(30)], mean)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 1 / 3 <= found.high
    assert held >= 53


def test_the_same_checkpoint_twice_is_noise_and_a_better_one_is_not() -> None:
    draw = np.random.default_rng(2)
    names = [str(number) for number in range(40)]
    called = [difference(sample(draw, 40, 4), sample(draw, 40, 4), names, mean) for _ in range(40)]
    assert sum(found.noise for found in called) >= 37
    better = difference(sample(draw, 40, 4), sample(draw, 40, 4, gain=0.4), names, pass_at(2))
    assert not better.noise
    assert better.low is not None
    assert better.low > 0


def test_few_structures_show_nothing_however_large_the_difference() -> None:
    none, all_correct = np.zeros((12, 8)), np.ones((12, 8))
    apart = [str(number) for number in range(12)]
    found = difference(none, all_correct, apart, mean)
    assert (found.value, found.noise, found.chance) == (1.0, False, 2 / 2**12)
    alike = difference(none, all_correct, [str(number % 5) for number in range(12)], mean)
    assert (alike.noise, alike.clusters, alike.chance) == (True, 5, 2 / 2**5)


def test_equal_answers_are_no_certainty() -> None:
    found = interval(np.zeros((3, 4)), ["a", "b", "c"], mean)
    assert found.low == 0.0
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 3))
