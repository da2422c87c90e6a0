"""What a trainer may rely on in a reward: finite, monotone, no attack above an honest failure, no score out of thin air."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stitchcuda.errors import BadInput
from stitchcuda.training.rewards import REWARDS, Judged, reward
from stitchcuda.training.rubric_record import Rubric, RubricScores
from stitchcuda.verify.api import Verdict
from stitchcuda.verify.reference.baseline_times import MODES, BaselineTime, BaselineTimes

PRODUCT, MILESTONES, OURS = REWARDS
NOT_BUILT = Verdict(accepted=False, tier="compiled", reasons=("the build failed: kernels/a.cu(1): error",))
LEAST = {PRODUCT: 0.0, MILESTONES: -1.0, OURS: -1.0}


def accepted(speedup: float | None, tier: Any = "timed") -> Verdict:
    return Verdict(accepted=True, tier=tier, speedup=speedup)


def rubric(*scores: int, **others: Any) -> Rubric:
    first, second, third, fourth = scores
    made = RubricScores(anti_hacking=first, cuda_engineering=second, operator_coverage=third, skill_compliance=fourth)
    return Rubric(scores=made, **others)


def times(**speedups: float | None) -> BaselineTimes:
    """Baselines with these speed-ups over an eager call of 1 ms; None: outputs that do not agree."""
    found = [
        BaselineTime(mode=mode.replace("_", "-"), ms=1 / (speedup or 2.0), eager_ms=1.0, agrees=speedup is not None)  # type: ignore[arg-type]
        for mode, speedup in {"eager": 1.0, **speedups}.items()
    ]
    return BaselineTimes(reference="0" * 64, name="r.py", device="NVIDIA H200", times=tuple(found))


FAIR = rubric(5, 3, 3, 3)
score = st.integers(1, 5)
rubrics = st.builds(rubric, st.integers(2, 5), score, score, score)
any_rubric = st.one_of(
    st.none(), rubrics, st.builds(rubric, score, score, score, score, vetoes=st.sampled_from([(), ("it cheats",)])),
    st.just(Rubric(scores=None, no_score="the judge refused")),
)  # fmt: skip
speedups = st.floats(1e-6, 1e6)
any_speedup = st.one_of(st.none(), st.floats(), speedups)
baseline = st.builds(
    BaselineTime, mode=st.sampled_from(MODES), ms=st.one_of(st.none(), st.floats(1e-4, 1e4)), eager_ms=st.just(1.0),
    agrees=st.sampled_from([True, False, None]), passing=st.booleans(),
)  # fmt: skip
baselines = st.one_of(
    st.none(),
    st.builds(
        BaselineTimes, reference=st.just("0" * 64), name=st.just("r.py"), device=st.just("NVIDIA H200"),
        times=st.lists(baseline, max_size=5).map(tuple), skipped=st.sampled_from(["", "no GPU"]),
    ),
)  # fmt: skip
tiers = st.sampled_from(["measured", "timed", "simulated", "compiled"])
around = st.fixed_dictionaries({  # all but the verdict and the rubric
    "baselines": baselines, "floor": st.one_of(st.none(), st.floats(1e-3, 1e6)), "skill": st.sampled_from([1, 2]),
})  # fmt: skip
names = st.sampled_from(sorted(REWARDS))


@given(names, st.booleans(), tiers, any_speedup, any_rubric, around)
@settings(max_examples=150, deadline=None)
def test_a_value_is_finite_or_there_is_a_reason(
    name: str, passed: bool, tier: Any, speedup: float | None, judge: Rubric | None, rest: dict[str, Any]
) -> None:
    found = reward(name, Judged(verdict=Verdict(accepted=passed, tier=tier, speedup=speedup), rubric=judge, **rest))
    assert found.name == name
    assert (found.value is None) is bool(found.no_score)
    assert found.value is None or math.isfinite(found.value)
    assert found == reward(name, Judged(verdict=Verdict(accepted=passed, tier=tier, speedup=speedup), rubric=judge, **rest))


@given(names, speedups, speedups, rubrics, around)
@settings(max_examples=150, deadline=None)
def test_a_faster_program_never_gets_less(name: str, one_s: float, two_s: float, judge: Rubric, rest: dict[str, Any]) -> None:
    slow, fast = (
        reward(name, Judged(verdict=accepted(speedup), rubric=judge, **rest)).value for speedup in sorted((one_s, two_s))
    )
    if slow is not None and fast is not None:
        assert fast >= slow


@given(st.floats(1e-3, 1e5), st.floats(1.001, 10), rubrics, around)
@settings(max_examples=100, deadline=None)
def test_ours_does_not_saturate(speedup: float, more: float, judge: Rubric, rest: dict[str, Any]) -> None:
    slow, fast = (reward(OURS, Judged(verdict=accepted(s), rubric=judge, **rest)).value for s in (speedup, speedup * more))
    if slow is not None and fast is not None:
        assert fast > slow


@given(names, any_rubric, any_rubric, tiers, any_speedup, speedups, rubrics, around)
@settings(max_examples=150, deadline=None)
def test_an_attack_gets_no_more_than_an_honest_failure_and_that_less_than_a_correct_program(
    name: str, judge: Rubric | None, other: Rubric | None, tier: Any, claimed: float | None, speedup: float, fair: Rubric,
    rest: dict[str, Any],
) -> None:  # fmt: skip
    honest = reward(name, Judged(verdict=NOT_BUILT, rubric=judge, **rest)).value
    assert honest == LEAST[name]
    refused = Verdict(accepted=False, tier=tier, speedup=claimed, reasons=("the program tampers with the process",))
    assert reward(name, Judged(verdict=refused, rubric=other, **rest)).value == honest
    for vetoed in (rubric(1, 5, 5, 5), rubric(5, 5, 5, 5, vetoes=("it copies",)), Rubric(scores=None, vetoes=("it copies",))):
        attack = reward(name, Judged(verdict=accepted(speedup), rubric=vetoed, **rest)).value
        assert attack is not None
        assert attack <= honest
    correct = reward(name, Judged(verdict=accepted(speedup), rubric=fair, **rest)).value
    assert correct is None or correct > honest


@given(speedups, rubrics, rubrics, st.sampled_from([1, 2]))
@settings(max_examples=100, deadline=None)
def test_the_product_never_falls_with_a_better_rubric(speedup: float, first: Rubric, second: Rubric, skill: Any) -> None:
    assert first.scores is not None
    assert second.scores is not None
    worse, better = sorted((first, second), key=lambda judge: judge.scores.share if judge.scores else 0)
    low, high = (
        reward(PRODUCT, Judged(verdict=accepted(speedup), rubric=judge, skill=skill)).value for judge in (worse, better)
    )
    assert low is not None
    assert high is not None
    assert high >= low


@pytest.mark.parametrize("name", REWARDS)
def test_what_could_not_be_judged_has_no_score_and_no_number(name: str) -> None:
    lost = reward(name, Judged(verdict=None, why_not_judged="the GPU is gone", rubric=FAIR, baselines=times(compile=2.0)))
    assert lost.value is None
    assert lost.no_score == "the program could not be judged: the GPU is gone"
    unheard = Rubric(scores=None, no_score="the judge refused")
    refused = Judged(verdict=accepted(2.0), rubric=unheard, baselines=times(compile=2.0))
    assert reward(name, refused).no_score == "the rubric has no scores: the judge refused"
    untimed = Judged(verdict=accepted(None), rubric=FAIR, baselines=times(compile=2.0))
    assert reward(name, untimed).no_score == "the program was accepted and not timed"


@pytest.mark.parametrize("name", [MILESTONES, OURS])
def test_a_baseline_that_could_not_be_timed_this_time_gives_no_score(name: str) -> None:
    full = BaselineTime(mode="compile", failed="the GPU's memory was full", passing=True)
    found = times().model_copy(update={"times": (full,)})
    assert "memory was full" in reward(name, Judged(verdict=accepted(2.0), baselines=found)).no_score


@pytest.mark.parametrize(
    ("speedup", "scores", "skill", "value"),
    [
        (1.0, (3, 3, 3, 3), 1, 1.3),                         # neutral: the speed-up and 0.3
        (1.0, (5, 5, 5, 5), 1, 1.95),
        (1.0, (5, 5, 5, 5), 2, 1.755),
        (0.5, (2, 1, 1, 1), 1, 0.8 * (0.5 + 1 / 16)),
        (1.8, (5, 5, 5, 5), 1, 3.0), (9.0, (5, 5, 5, 5), 1, 3.0),  # the clip: 1.8 is worth as much as 9
        (2.8, (3, 3, 3, 3), 1, 3.0),
        (9.0, (2, 2, 2, 2), 1, 3.0), (9.0, (2, 1, 1, 1), 1, 5.3 * (0.5 + 1 / 16)),
    ],
)  # fmt: skip
def test_the_product_is_the_published_one(speedup: float, scores: Any, skill: Any, value: float) -> None:
    found = reward(PRODUCT, Judged(verdict=accepted(speedup), rubric=rubric(*scores), skill=skill))
    assert found.value == pytest.approx(min(value, 3.0))
    assert reward(PRODUCT, Judged(verdict=accepted(speedup))).no_score.startswith("it needs the rubric")


@pytest.mark.parametrize(
    ("speedup", "others", "value"),
    [
        (1.05, {"compile": 2.0}, 1.0), (1.06, {"compile": 2.0}, 2.0), (2.1, {"compile": 2.0}, 2.0),
        (2.2, {"compile": 2.0}, 3.0),
        (9.0, {"compile": None}, 2.0), (9.0, {}, None),
    ],
)  # fmt: skip
def test_the_milestones_are_cuda_agents(speedup: float, others: Any, value: float | None) -> None:
    assert reward(MILESTONES, Judged(verdict=accepted(speedup), baselines=times(**others))).value == value


def test_ours_counts_from_the_best_baseline_that_agrees_and_to_the_floor() -> None:
    found = reward(OURS, Judged(verdict=accepted(3.0), baselines=times(graph=1.5, compile=None), floor=6.0))
    assert found.value == pytest.approx(math.log2(3) + 0.5)
    assert found.parts["best baseline"] == "graph"
    assert reward(OURS, Judged(verdict=accepted(1.0))).value == pytest.approx(1.0), "nothing but eager is known"


def test_a_simulated_program_is_correct_and_no_faster() -> None:
    judged = Judged(verdict=accepted(None, "simulated"), rubric=FAIR, baselines=times(compile=2.0), floor=4.0)
    values = [reward(name, judged).value for name in REWARDS]
    assert values == [pytest.approx(1.3 * (1 + 10 / 16 - 0.5)), 1.0, pytest.approx(math.log2(1.5) + 0.25)]
    assert "simulator" in str(reward(OURS, judged).parts["timed"])


def test_an_unknown_reward_is_refused() -> None:
    with pytest.raises(BadInput, match=r"no reward 'speed': give one of stitchcuda-product/1"):
        reward("speed", Judged(verdict=NOT_BUILT))
