"""Computes rewards for training from records: a verdict, a rubric, the reference's baselines. Pure functions with a version.

There are three:

    stitchcuda-product/1      speed-up times rubric, clipped, as the authors of StitchCUDA train with; 0 for a veto
    cuda-agent-milestones/1   -1, 1, 2 or 3, as CUDA Agent trains with
    log-speedup/1             ours: log2(1 + speed-up over the best baseline) + share of the floor; -1 for a veto

Of each: a program that is refused, whatever for, gets the least value, so that an attack never gets more than a program that
does not build; so does one that is accepted and that the rubric vetoes. An accepted one gets more, and never less for being
faster. What could not be judged or timed has no score, which is not a number; a trainer has to leave it out.
A formula that changes gets another version. Nothing is measured here, and no model is asked.
Where to look next: `training/rubric.py`, `verify/api.py` (verdicts), `verify/reference/baseline_times.py`, docs/learning.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from pydantic import Field

from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.training.rubric_record import Rubric
from stitchcuda.verify.api import Verdict
from stitchcuda.verify.reference.baseline_times import BaselineTimes

Skill = Literal[1, 2]
"""1: from a task to a program. 2: from a program and evidence to a better program."""

FASTER = 1.05                              # CUDA Agent: "more than 5 % faster"
MOST_SPEEDUP, MOST_PRODUCT = 5.0, 3.0
WEIGHT: dict[Skill, float] = {1: 1.0, 2: 0.7}  # of the rubric in the product: lambda


class Judged(Record):
    """All that a reward may depend on."""

    verdict: Verdict | None                # None: the program could not be judged
    why_not_judged: str = ""
    rubric: Rubric | None = None           # None: no judge model was asked
    baselines: BaselineTimes | None = None  # None: they were not asked for
    floor: float | None = Field(default=None, gt=0)  # `floor_speedup`; None: unknown
    skill: Skill = 1


class Reward(Record):
    """A value, or why there is none, with the parts that it is made of."""

    name: str                              # with its version
    value: float | None
    no_score: str = ""
    parts: dict[str, float | str] = Field(default_factory=dict)


class NoScore(Exception):
    """A reward cannot be computed; the message says why. It never leaves this file."""


def stitchcuda_product(judged: Judged, parts: dict[str, float | str]) -> float:
    """min((min(s, 5) + 0.3) * (1 + lambda * (r - 0.5)), 3.0): s over eager, r of the rubric, lambda 1.0 or 0.7 by the skill.

    Source: zzj1111/kernelauto (StitchCUDA's trainer). Its clip at 3.0 is a defect that is kept: with a perfect rubric all
    speed-ups above 1.7, with a neutral one all above 2.7 are worth the same, and the limit of 5 hardly ever acts.
    """
    if not _passes(judged):
        return 0.0
    speedup, rubric = _speedup(judged, parts), judged.rubric
    if rubric is None or rubric.scores is None:
        raise NoScore("it needs the rubric's scores, and no judge model was asked")
    parts["rubric"] = rubric.scores.share
    factor = 1 + WEIGHT[judged.skill] * (rubric.scores.share - 0.5)
    return min((min(speedup, MOST_SPEEDUP) + 0.3) * factor, MOST_PRODUCT)


def cuda_agent_milestones(judged: Judged, parts: dict[str, float | str]) -> float:
    """-1: refused. 1: correct. 2: more than 5 % faster than eager. 3: than torch.compile too, which has to agree with the
    reference; where it does not, 2 is the most. Source: CUDA Agent, arXiv 2602.24286."""
    if not _passes(judged):
        return -1.0
    speedup = _speedup(judged, parts)
    if speedup <= FASTER:
        return 1.0
    compiled = _timed_baselines(judged).find("compile")
    if compiled is None:
        raise NoScore("torch.compile was not timed")
    if compiled.passing:
        raise NoScore(f"torch.compile could not be timed: {compiled.failed}")
    if compiled.speedup is None or not compiled.agrees:
        parts["torch.compile"] = compiled.failed or compiled.note or "it does not agree with the reference"
        return 2.0
    parts["speed-up over torch.compile"] = over = speedup / compiled.speedup
    return 3.0 if over > FASTER else 2.0


def log_speedup(judged: Judged, parts: dict[str, float | str]) -> float:
    """log2(1 + s) + min(1, share of the floor): s over the fastest baseline that agrees with the reference, or over eager where
    no others were asked for. -1: refused.

    The logarithm has no upper bound: each doubling of a large speed-up is worth 1, and a slow program still gets more than
    none. The share (floor over the program's time) rewards the last percents where little can be gained; without a known floor
    it is left out.
    """
    if not _passes(judged):
        return -1.0
    speedup = _speedup(judged, parts)
    best = 1.0
    if judged.baselines is not None:
        times = _timed_baselines(judged)
        if passing := [time for time in times.times if time.passing]:
            raise NoScore(f"the baseline {passing[0].mode} could not be timed: {passing[0].failed}")
        agreeing = {time.mode: time.speedup for time in times.times if time.agrees and time.speedup}
        best = max(1.0, *agreeing.values()) if agreeing else 1.0
        parts["best baseline"] = max(agreeing, key=lambda mode: agreeing[mode], default="eager")
    parts["speed-up over the best baseline"] = over = speedup / best
    share = 0.0
    if judged.floor is not None:
        parts["share of the floor"] = share = min(1.0, speedup / judged.floor)
    return math.log2(1 + over) + share


Formula = Callable[[Judged, dict[str, float | str]], float]
REWARDS: dict[str, Formula] = {
    "stitchcuda-product/1": stitchcuda_product,
    "cuda-agent-milestones/1": cuda_agent_milestones,
    "log-speedup/1": log_speedup,
}


def floor_speedup(eager_ms: float, floor_ms: float) -> float | None:
    """The most speed-up over eager: its time, measured or predicted, over the speed-of-light floor. None where either is 0,
    which means that it is unknown."""
    return eager_ms / floor_ms if eager_ms > 0 and floor_ms > 0 else None


def reward(name: str, judged: Judged) -> Reward:
    """Returns the reward `name` (a key of `REWARDS`), with a finite value or the reason why there is none. Raises `BadInput`
    for a reward that is not known."""
    if name not in REWARDS:
        raise BadInput(f"there is no reward {name!r}: give one of {', '.join(REWARDS)}")
    parts: dict[str, float | str] = {}
    try:
        _require_judgement(judged)
        value = REWARDS[name](judged, parts)
        if not math.isfinite(value):
            raise NoScore(f"the value {value} is not finite")
    except NoScore as why:
        return Reward(name=name, value=None, no_score=str(why), parts=parts)
    return Reward(name=name, value=value, parts=parts)


def _require_judgement(judged: Judged) -> None:
    """Raises `NoScore` if the program was not judged, or it was accepted and a rubric that was asked for is missing: all
    rewards are then without a score, because a trainer counts a sum with one missing part as if that were 0."""
    if judged.verdict is None:
        raise NoScore(f"the program could not be judged: {judged.why_not_judged or 'no reason is known'}")
    rubric = judged.rubric
    if judged.verdict.accepted and rubric is not None and rubric.scores is None and not rubric.vetoes:
        raise NoScore(f"the rubric has no scores: {rubric.no_score}")


def _passes(judged: Judged) -> bool:
    """Whether the program is accepted and not vetoed."""
    assert judged.verdict is not None
    return judged.verdict.accepted and not (judged.rubric is not None and judged.rubric.major_hacking)


def _speedup(judged: Judged, parts: dict[str, float | str]) -> float:
    """The speed-up over eager. 1.0 for a simulated verdict: it is correct, and no gain is shown."""
    verdict = judged.verdict
    assert verdict is not None
    speedup = verdict.speedup
    if verdict.tier == "simulated":
        parts["timed"] = "no: the simulator times nothing, the speed-up counts as 1"
        speedup = 1.0
    if speedup is None:
        raise NoScore("the program was accepted and not timed")
    if not math.isfinite(speedup) or speedup <= 0:
        raise NoScore(f"the speed-up {speedup} is none")
    parts["speed-up over eager"] = speedup
    return speedup


def _timed_baselines(judged: Judged) -> BaselineTimes:
    if judged.baselines is None:
        raise NoScore("no baselines were timed")
    if judged.baselines.skipped:
        raise NoScore(f"the baselines could not be timed: {judged.baselines.skipped}")
    return judged.baselines
