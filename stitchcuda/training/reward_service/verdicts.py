"""Says what follows from a judged program: ok, the candidate's error, an error of ours, or one more try; and its reward.

What is no fault of the program is never a score. A program whose process was killed, or that had no memory or GPU, is judged
again before it is blamed: the system may have done it. It starts nothing.
Where to look next: `training/reward_service/jobs.py` (who tries again).
"""

from __future__ import annotations

import math
import re
from concurrent.futures import Future
from dataclasses import dataclass

from stitchcuda.errors import NotJudged, UnusableReference
from stitchcuda.state import Target
from stitchcuda.training.reward_service.records import JobAnswer, JobSeconds, Kind, RewardFunction, State
from stitchcuda.verify.api import Verdict

_PERHAPS_OURS = re.compile(r"SIGKILL|out of memory|no CUDA-capable device|uncorrectable ECC|GPU is lost")
_NO_MODEL = re.compile(r"^[\w./-]+ defines no class ModelNew")
_BUILD = re.compile(r"^the build failed|the program's kernels do not build")
_RUN = re.compile(r"the program (raised|crashed|ended by itself|ran out|did not|used|started|printed|wrote)|took longer than")


@dataclass(frozen=True)
class JobOutcome:
    """What one try came to. `again`: another try may come to something else."""

    state: State
    kind: Kind = ""
    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    again: bool = False
    no_score: bool = False


def outcome_of(judged: Future[Verdict], target: Target) -> JobOutcome:
    """The outcome of a future of `VerifierPool` that is done and was not cancelled."""
    error = judged.exception()
    if error is None:
        verdict = judged.result()
        if verdict.accepted:
            return JobOutcome("ok", "", verdict)
        again = any(map(_PERHAPS_OURS.search, verdict.reasons))
        return JobOutcome("candidate_error", kind_of(verdict), verdict, verdict.reasons, again)
    said = (str(error) or type(error).__name__,)
    if isinstance(error, UnusableReference):
        return JobOutcome("infra_error", "task", reasons=said)
    if isinstance(error, NotJudged):       # on the simulator a GPU may do better; on a GPU the program asks for the impossible
        return JobOutcome("candidate_error", "not_judged", _refusal(said), said, no_score=target == "sim")
    return JobOutcome("infra_error", "unavailable", reasons=said, again=True)


def no_program(why: str) -> JobOutcome:
    """The outcome for what is no program at all."""
    return JobOutcome("candidate_error", "no_program", _refusal((why,)), (why,))


def kind_of(verdict: Verdict) -> Kind:
    """The kind of a refused program's error."""
    if any(map(_NO_MODEL.search, verdict.reasons)):
        return "no_program"
    if any(map(_BUILD.search, verdict.reasons)):
        return "build"
    if verdict.within_bound is False:
        return "wrong"
    return "run" if any(map(_RUN.search, verdict.reasons)) else "refused"


def answer(known: JobAnswer, outcome: JobOutcome, reward: RewardFunction | None) -> JobAnswer:
    """The final answer to a job. A reward that is not there (the server changed), or no finite number, is an error of ours."""
    verdict, found = outcome.verdict, dict[str, object](state=outcome.state, kind=outcome.kind, reasons=outcome.reasons)
    if outcome.no_score:
        found["no_score"] = "the simulator cannot judge it"
    elif verdict is not None and reward is None:
        found |= _no_reward(known, outcome, "is not known to this server any more")
    elif verdict is not None and reward is not None:
        given = reward(verdict)
        found |= {"reward": given.value, "no_score": given.no_score, "reward_parts": given.parts}
        if given.value is not None and not math.isfinite(given.value):
            found |= _no_reward(known, outcome, "is no finite number")
    if verdict is not None:
        spent = verdict.seconds
        unknown = outcome.kind in ("no_program", "not_judged")
        found |= {
            "compiled": None if unknown else outcome.kind != "build", "correct": verdict.within_bound, "tier": verdict.tier,
            "speedup": verdict.speedup, "verdict": verdict,
            "seconds": JobSeconds(
                queued=known.seconds.queued, built=spent.build, checked=spent.check, timed=spent.timing
            ),
        }  # fmt: skip
    return known.model_copy(update=found)


def _no_reward(known: JobAnswer, outcome: JobOutcome, why: str) -> dict[str, object]:
    reasons = (f"the reward {known.reward_schema} {why}", *outcome.reasons)
    return {"state": "infra_error", "kind": "unavailable", "reward": None, "reasons": reasons, "reward_parts": {}}


def _refusal(reasons: tuple[str, ...]) -> Verdict:
    return Verdict(accepted=False, tier="compiled", reasons=reasons)
