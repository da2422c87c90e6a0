"""Scores one program: has it judged, timed baselines and a rubric made where they are asked for, and computes all rewards.

Where to look next: `verify/api.py` (the verdict), `training/rubric.py` (the rubric), `training/rewards.py` (the formulas).
"""

from __future__ import annotations

from pathlib import Path

from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.regions import cost
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import NotJudged, Unavailable
from stitchcuda.state import Record, Settings
from stitchcuda.tools.device.device import device_facts
from stitchcuda.training.rewards import REWARDS, Judged, Reward, Skill, floor_speedup, reward
from stitchcuda.training.rubric import judge_program
from stitchcuda.verify.api import Verdict, Verifier, require_program
from stitchcuda.verify.reference.baselines import time_baselines


class Scored(Record):
    """What a program was found to be, and its rewards."""

    judged: Judged
    rewards: tuple[Reward, ...]


def score_program(
    program: Path, reference: Path, settings: Settings, *, chat: Chat | None = None, skill: Skill = 1, evidence: str = ""
) -> Scored:
    """Judges a program and computes every reward. `settings`: target, policy, precision, memory, whether baselines are timed.
    `chat`: the judge model of the rubric; None: there is none. `evidence`: what the author of skill 2 was given.

    A program that cannot be judged has rewards without a score. Raises `BadInput` for a reference or program that cannot be
    used, `ReplyPending` where a mailbox has to answer first.
    """
    require_program(program)
    judged = Judged(verdict=None, skill=skill)
    options = settings.model_dump(include={"target", "policy", "precision", "gpu_memory_gb"})
    try:
        with Verifier(reference, **options) as verifier:
            judged = judged.model_copy(update={"verdict": verifier.verify(program)})
            if judged.verdict is not None and judged.verdict.accepted:
                judged = judged.model_copy(update={"floor": _floor(verifier, settings)})
    except (NotJudged, Unavailable) as error:
        if judged.verdict is None:
            judged = judged.model_copy(update={"why_not_judged": str(error)})
    if (verdict := judged.verdict) is not None:
        judged = _with_others(judged, verdict, program, reference, settings, chat, evidence)
    return Scored(judged=judged, rewards=tuple(reward(name, judged) for name in REWARDS))


def _with_others(
    judged: Judged, verdict: Verdict, program: Path, reference: Path, settings: Settings, chat: Chat | None, evidence: str
) -> Judged:
    update: dict[str, object] = {}
    if settings.time_baselines and verdict.accepted:
        update["baselines"] = time_baselines(reference, precision=settings.precision)
    if chat is not None:
        source = reference.read_text(errors="replace")
        update["rubric"] = judge_program(chat, program, source, verdict, skill=judged.skill, evidence=evidence)
    return judged.model_copy(update=update)


def _floor(verifier: Verifier, settings: Settings) -> float | None:
    """The most speed-up over eager; None for what could not be captured."""
    facts = verifier.judge.baseline()
    graph = OpGraph.model_validate_json(facts.capture)
    device = device_facts(settings.target, predict_for=settings.predict_for)
    eager_ms = facts.eager_ms or cost.eager_ms(graph, partition(graph), device)
    return floor_speedup(eager_ms, cost.floor_ms(graph, device, settings.precision))
