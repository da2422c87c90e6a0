"""A lesson that repeats gains weight, one that fails to repeat loses it, and both can be read."""

from __future__ import annotations

import pytest

from stitchcuda.memory.experience import Experience, SimilarExperience, group_by_key, promise_kept
from stitchcuda.memory.lesson_text import describe_experience, describe_experiences
from tests.memory.lessons import lesson, refuted, situation, untimed


def experience(*lessons: object) -> Experience:
    (found,) = group_by_key(lessons)  # type: ignore[arg-type]
    return found


def test_a_lesson_that_repeats_gains_weight_and_one_that_does_not_loses_it() -> None:
    once = experience(lesson("a1"))
    twice = experience(lesson("a1"), lesson("a2"))
    failed = experience(lesson("a1"), refuted("a2"))
    failed_again = experience(lesson("a1"), refuted("a2"), refuted("a3"))
    assert twice.weight > once.weight > failed.weight > failed_again.weight
    assert [len(found.lessons) for found in (once, twice, failed, failed_again)] == [1, 2, 2, 3]
    assert failed_again.accepted == 1


def test_weight_is_the_formula_of_the_docstring() -> None:
    assert experience(lesson()).weight == pytest.approx(2 / 3 * (1 + 2 / 3) / 2)
    assert experience(refuted("a1")).weight == pytest.approx(1 / 3 * (1 + 1 / 3) / 2)
    assert experience(untimed("a1")).weight == pytest.approx(1.5 / 2.5 * (1 + 1 / 2) / 2)
    assert experience(lesson("a1"), refuted("a2"), untimed("a3")).weight == pytest.approx(2.5 / 4.5 * (1 + 2 / 4) / 2)


def test_the_same_attempt_counts_once() -> None:
    assert experience(lesson("a1"), lesson("a1"), lesson("a1")).weight == experience(lesson("a1")).weight


def test_a_prediction_that_held_counts_for_more() -> None:
    assert experience(lesson(predicted_ms=0.12)).weight > experience(lesson(predicted_ms=0.5)).weight
    assert promise_kept(lesson(predicted_ms=0.2))
    assert not promise_kept(lesson(predicted_ms=0.21))
    assert not promise_kept(lesson(predicted_ms=0.04))
    assert not promise_kept(refuted("a1", saving_ms=0.12)), "it was not worth keeping"


def test_what_was_timed_weighs_more_than_what_was_not() -> None:
    assert experience(lesson()).weight > experience(untimed("a1")).weight > experience(refuted("a1")).weight


def test_the_text_of_a_lesson_that_held() -> None:
    similar = SimilarExperience(experience=experience(lesson("a1"), lesson("a2")), similarity=1.0, score=0.5)
    text = describe_experiences([similar])
    assert text == (
        "- layer_norm + gelu at [4096, 1024] float16 on NVIDIA H100 (sm_90a): two-pass vectorised loads, one block per row: "
        "predicted 0.12 ms, measured 0.1 (0.09 to 0.11) ms, accepted 2 of 2 times (measured)."
    )


def test_the_text_tells_refusals_and_does_not_claim_what_was_not_timed() -> None:
    mixed = describe_experience(experience(lesson("a1"), refuted("a2"), untimed("a3")))
    assert "accepted 2 of 3 times (measured, simulated); refuted: does not pay" in mixed
    assert "measured 0.045 (-0.02 to 0.11) ms" in mixed
    never = describe_experience(experience(untimed("a1", predicted_ms=0.004)))
    assert never.endswith("predicted 4 µs, not timed, accepted 1 of 1 time (simulated).")
    wrong = describe_experience(experience(untimed("a1", outcome="refuted", reason="not built: x", tier=None)))
    assert wrong.endswith("not timed, accepted 0 of 1 time; refuted: not built: x.")


def test_notes_and_host_features_in_the_text() -> None:
    assert "shared memory" not in describe_experience(experience(lesson()))
    assert "(Each block keeps its row in shared memory)" in describe_experience(experience(lesson()), notes=True)
    done = {"kind": "host", "feature": "cuda_graph", "title": "CUDA graph replay", "strategy": "capture once"}
    graph = lesson(of=situation(precision="bf16"), **done)
    assert "in bf16 on NVIDIA H100 (sm_90a): CUDA graph replay, capture once: " in describe_experience(experience(graph))


def test_the_lesson_that_speaks_for_all_is_the_best_one() -> None:
    several = experience(refuted("a1", saving_ms=0.9), untimed("a2"), lesson("a3"), lesson("a4", saving_ms=0.11))
    assert several.best.attempt == "a4"


def test_many_operators_are_told_in_short() -> None:
    names = tuple((f"aten.op{number}.default", 1 + number % 2) for number in range(20))
    text = describe_experience(experience(lesson(of=situation(operators=names))))
    assert text.startswith("op0 + op1 ×2 + op2 + op3 ×2 + op4 + op5 ×2 + 14 more kinds at [4096, 1024]")
