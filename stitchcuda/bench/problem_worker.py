"""Optimises one problem in a process of its own: `python -m stitchcuda.bench.problem_worker ORDER` (an `Order` as JSON).

A session that an earlier process began is gone on with. The last line of stdout is the `Result` as JSON. The process ends when
its standard input does, so that it does not outlive whoever started it; the session is checkpointed, so nothing is lost.
Where to look next: `bench/run.py` (who starts it), `sessions/session.py` (the session).
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stitchcuda.bench.results import End, Result, baselines_of, beside, closest
from stitchcuda.errors import BadInput, NotCaptured, NotJudged, StitchError, UnusableReference
from stitchcuda.sessions import session as sessions
from stitchcuda.sessions.outcome import Outcome
from stitchcuda.sessions.session import Session
from stitchcuda.state import Attempt, DeviceFacts, Evidence, Record, Settings, Usage
from stitchcuda.store import Workspace
from stitchcuda.verify.api import needed_tolerance, outputs_within_bound
from stitchcuda.verify.reference.baseline_times import BaselineTimes

_SHORT = re.compile(r"(?:ran )?out of memory")
_MOST_TOLD = 3                             # attempts
_ALONE = 137                               # the exit code when nobody waits any more
_PASSED_ON = (
    "model", "roles", "options", "base_url", "from_scratch", "candidates", "predict_for", "goal", "budget_usd", "max_tokens",
    "max_gpu_s", "max_attempts", "max_minutes", "policy", "precision", "effort", "gpu_memory_gb", "time_baselines",
)  # fmt: skip


class Order(Record):
    """What a worker is to do. `workspace`: the folder of the run's sessions. `alone`: it has the GPU to itself, in a session of
    its own; one that ran beside others was short of memory."""

    problem: str
    alone: bool = False
    reference: Path
    workspace: Path
    settings: Settings


def work(order: Order) -> Result:
    """Runs the problem's session to its end, or goes on with it, and returns the result."""
    home = Workspace(order.workspace, create=True)
    name = f"{order.problem}-alone" if order.alone else order.problem
    try:
        if any(record.name == name for record in home.sessions()):
            session = sessions.resume(name, workspace=home, wait=True, progress=False)
        else:
            settings = {name: getattr(order.settings, name) for name in _PASSED_ON}
            session = sessions.optimize(
                order.reference, session=name, workspace=home, device=order.settings.target, progress=False, **settings
            )
        return result_of(session, order.problem)
    except UnusableReference as error:
        return _without_program(home, name, order.problem, "broken", error)
    except NotCaptured as error:           # our limit: it counts as a problem without a program
        return _without_program(home, name, order.problem, "refused", error)
    except (BadInput, NotJudged) as error:
        return _without_program(home, name, order.problem, "could not judge", error)
    except StitchError as error:
        return _without_program(home, name, order.problem, "failed", error)


def _without_program(home: Workspace, name: str, problem: str, end: End, error: StitchError) -> Result:
    """The result of a session that raised an error, with what it has used."""
    usage = Usage()
    with suppress(StitchError):
        usage = Session.open(name, home).state().get("usage", usage)
    return Result(
        id=problem, problem=problem, end=end, reasons=(str(error),), usage=usage, seconds=usage.wall_s,
        short_of_memory=bool(_SHORT.search(str(error))),
    )  # fmt: skip


def result_of(session: Session, problem: str) -> Result:
    """The result of a session that has stopped."""
    with session.read_once():
        outcome, state = session.outcome(), session.state()
    final, baseline = state.get("final"), state.get("baseline")
    check = final.check if final else None
    output = closest(check)
    result = Result(
        id=problem, problem=problem, end=_end(outcome), reasons=_reasons(outcome, session.attempts(), state.get("notes", ())),
        label=check.label if check else "", tier=outcome.tier,
        device=_device(baseline.device) if baseline else "",
        speedups={"eager": outcome.speedup} if outcome.accepted and outcome.speedup else {},
        predicted=outcome.predicted_speedup if outcome.accepted else None,
        eager_ms=outcome.baseline_ms, program_ms=outcome.best_ms if outcome.accepted else None,
        max_error=output.max_error / output.max_bound if output and output.max_bound else None,
        within_bound=outputs_within_bound(check) if check else None, tolerance=needed_tolerance(check) if check else None,
        significand=(output.bits, output.bits_of_reference) if output else (None, None),
        shares=(check.own_share, check.vendor_share, check.framework_share) if check else (0.0, 0.0, 0.0),
        attempts=outcome.attempts, usage=outcome.usage, seconds=outcome.usage.wall_s,
        program=os.path.relpath(outcome.program, session.home.root.parent) if outcome.program else "",
        short_of_memory=_was_short_of_memory(session, final),
    )  # fmt: skip
    digest = state.get("baselines")
    times = BaselineTimes.model_validate_json(session.home.store.get(digest)).times if digest else ()
    return beside(result, baselines_of(problem, times))


def _was_short_of_memory(session: Session, final: Evidence | None) -> bool:
    """Whether an attempt, its timing or the last check ran out of memory."""
    read = session.home.store.get
    found = [Evidence.model_validate_json(read(attempt.evidence)) for attempt in session.attempts()]
    checks = [(evidence.check, evidence.timing) for evidence in [*found, *([final] if final else [])]]
    told = [
        sentence for check, timing in checks
        for sentence in (*(check.reasons if check else ()), *(timing.refused if timing else ()))
    ]  # fmt: skip
    return any(map(_SHORT.search, told))


def _device(facts: DeviceFacts) -> str:
    if facts.target == "sim":
        return f"simulator, predictions for {facts.name}"
    return f"{facts.name}, driver {facts.driver}, torch {facts.torch}"


def _end(outcome: Outcome) -> End:
    if outcome.accepted:
        return "accepted"
    ends: dict[str, End] = {"nothing_to_do": "nothing to do", "done": "refused", "parked": "parked"}
    return ends.get(outcome.status, "failed")


def _reasons(outcome: Outcome, attempts: Sequence[Attempt], notes: tuple[str, ...]) -> tuple[str, ...]:
    """Why there is no accepted program: what became of the attempts, the last ones first."""
    if outcome.accepted:
        return ()
    given_up = tuple(note for note in notes if "is given up" in note)
    tried = [f"{attempt.task}: {attempt.route_reason}" for attempt in attempts[: -_MOST_TOLD - 1 : -1] if attempt.route_reason]
    return (*([outcome.stop_reason] if outcome.stop_reason else ()), *(given_up or tried or notes[-1:]))


def _end_with_stdin() -> None:
    while os.read(0, 4096):                # not sys.stdin: its lock would be held when the interpreter ends
        pass
    os._exit(_ALONE)


def main() -> int:
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    print(work(Order.model_validate_json(sys.argv[1])).model_dump_json(), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
