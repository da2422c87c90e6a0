"""Decides whether a loaded program is correct: calls it on secret inputs and compares its outputs with the reference.

The first input set is called twice, which also shows whether the program is deterministic. In a final check every set is, other
sizes are tried, and 64 to 128 more calls (or a second's worth) must still be right. The outputs of the first call must not have
changed after the second, nor those of a later call at the end. Last come parameters of other magnitudes, and a new worker gets
them where this one is wrong with them.
A failure of the program is a `CheckResult`, never an exception.
Where to look next: `verify/program/trial.py` (how one call is made and compared), `verify/judge/examination.py` (who calls
this), `verify/ablation/own_work.py` (what is checked after it).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.counts import counted
from stitchcuda.state import MOST_STEPS, CallStep, CheckResult, OutputError
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.far_state import KINDS
from stitchcuda.verify.inputs.other_parameters import wide_bounds
from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, bounds_with, shorten_list
from stitchcuda.verify.inputs.variants import GIVEN, describe
from stitchcuda.verify.integrity.device_time import RecordedWork
from stitchcuda.verify.judge.other_calls import check_row, check_shared
from stitchcuda.verify.messages.program_requests import CallWork, Step
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.other_uses import (
    try_modes,
    try_new_instance,
    try_other_layout,
    try_other_parameters,
    try_second_instance,
)
from stitchcuda.verify.program.trial import Trial

_MORE_CALLS = 64                           # a final check makes between this and twice as many further calls ...
_FEWEST_KEPT = 8                           # inputs and outputs that are kept: fewer may be a cache
_MORE_S = 1.0                              # ... or as many as fit into so many seconds
_OTHER = "with other parameters, larger and smaller than those that the constructor writes"
_MOST_TEXT = 160                           # characters of a step's name, and of its tensors
_MOST_NAMED = 120                          # characters of a kernel's name that a worker reported, in a reason


def check(
    trial: Trial, secret_inputs: SecretInputs, seeds: int, *, final: bool, others: Iterable[InputSet] = ()
) -> CheckResult:
    """Checks a loaded program on the first `seeds` input sets; stops at the first that fails. Worker failures become reasons.

    The first set is called twice, with its inputs at the same addresses and at new ones. `final`: every set is, and `others`
    (rare input sets, and such of other sizes) and many more calls follow.
    """
    worst: dict[str, OutputError] = {}
    reasons: list[str] = []
    work: CallWork | None = None
    deterministic: bool | None = None
    held: InputSet | None = None           # whose outputs the worker keeps, to be read again
    fewer: list[bool] = []                 # for each input set: did a second call launch fewer own kernels?
    done = 0
    bounds = secret_inputs.bounds(seeds)
    strict = [inputs for inputs in secret_inputs.sets[:seeds] if not inputs.lenient]
    held_back = secrets.choice(_held_back(strict)) if final else None
    judged = [inputs for inputs in strict if inputs is not held_back]
    later = 1 + secrets.randbelow(max(1, len(judged) - 1))
    try:
        for number, given in enumerate(judged):
            hold = number in (0, later)
            answer = trial.call(given, same_addresses=True, hold=hold)
            held = given if hold else held
            work = work or answer.reply
            errors, reasons = trial.compare(given, answer, bounds)
            _keep_worst(worst, errors)
            if not reasons and (number == 0 or final):
                again = trial.call(given, same_addresses=False)
                work = again.reply         # a first call may warm up, build, or record a CUDA graph
                errors, reasons = trial.compare(given, again, bounds)
                reasons = [f"on a second call with the same inputs, {reason}" for reason in reasons]
                _keep_worst(worst, errors)
                same = set(again.names) == set(answer.names) and not trial.find_changed(answer, again)
                deterministic = same if deterministic is None else deterministic and same
                fewer.append(again.reply.launches < answer.reply.launches)
            if not reasons and number == 0:
                reasons = _overwritten(trial, given)
            done += 1
            if reasons:
                reasons = [f"{reason}{_variant(given)}" for reason in reasons]
                break
        for given in others if not reasons else ():
            allowed = bounds_with(secret_inputs, seeds, given)
            if given.seed == judged[0].seed:  # it repeats this set in part
                trial.call(judged[0], same_addresses=False)
            _, reasons = trial.compare(given, trial.call(given, same_addresses=False), allowed)
            if reasons:
                where = "at another size that its shape guard allows, " if given.variant == GIVEN else ""
                reasons = [f"{where}{reason}{_variant(given)}" for reason in reasons]
                break
            del given
        if not reasons and len(fewer) > 1 and all(fewer):
            reasons = [
                "it launches fewer kernels of its own for inputs that it has seen: results of earlier calls are remembered"
            ]
        if not reasons and final:
            reasons = _much_later(trial, held_back or secret_inputs.sets[0], bounds)
            done += held_back is not None
        if not reasons and final:
            reasons = check_row(trial, secret_inputs, strict) or check_shared(trial, secret_inputs, strict)
        if not reasons and held is not None:
            reasons = _overwritten(trial, held)
    except WorkerFailed as failure:
        return failed_check(trial, failure, outputs=tuple(worst.values()), seeds=done)
    if reasons and trial.packed:
        names = shorten_list([_one_line(name) for name in trial.packed])
        reasons.append(
            f"its constructor made {names} of parameters and keeps it beside them: parameters that are loaded later do not "
            "reach it; make it in forward, or in a hook that runs after loading (register_load_state_dict_post_hook)"
        )
    if reasons and (drawn := trial.what_is_drawn()):
        reasons.append(f"{drawn}: a program must draw the same ones, with the same torch functions, shapes and order")
    result = CheckResult(
        ok=not reasons,
        tier=trial.tier,
        seeds=done,
        outputs=tuple(worst.values()),
        reasons=tuple(reasons),
        deterministic=deterministic,
        notes=(*trial.notes, *secret_inputs.notes),
        protections=trial.protections.on,
        unprotected=tuple(f"{name}: {why}" for name, why in trial.protections.denied),
    )
    return result.model_copy(update=_shares(work or CallWork()))


def add_trace(result: CheckResult, trial: Trial, secret_inputs: SecretInputs, seeds: int) -> CheckResult:
    """Adds to a correct program's result what a trace of the GPU shows of one call, or refuses it (GPU only). The shares of its
    work follow from times of kernels, so nobody else may use the GPU meanwhile."""
    try:
        work, wrong = trial.profile(secret_inputs.sets[0], secret_inputs.bounds(seeds))
    except WorkerFailed as failure:
        return failed_check(trial, failure, outputs=result.outputs, seeds=result.seeds)
    reasons = [f"while it was profiled, {reason}" for reason in wrong] or _refuse_traced(work)
    notes = (*result.notes, *(note for note in trial.notes if note not in result.notes))
    return result.model_copy(update={"ok": not reasons, "reasons": tuple(reasons), "notes": notes, **_shares(work)})


def _shares(work: CallWork) -> dict[str, Any]:
    """The fields of a result that say who did a call's work."""
    return {
        "own_share": work.own, "own_bytes": work.own_bytes, "elsewhere": work.elsewhere,
        "boundary": min(work.boundary, work.elsewhere),
        "host_bytes": work.host_bytes, "vendor_share": work.vendor, "framework_share": work.framework,
        "vendor_by_torch": work.vendor_by_torch, "launches": work.launches,
        "host_seen": ("cuda_graph",) if work.replays else (), "steps": _steps(work.steps),
    }  # fmt: skip


def _steps(reported: Sequence[Step]) -> tuple[CallStep, ...]:
    """The steps of a call, equal ones in a row as one. Their texts come from the program's worker: each is one short line."""
    steps: list[CallStep] = []
    for who, name, amount, tensors, line in reported[:MOST_STEPS]:
        step = CallStep(who=who, name=_one_line(name), tensors=_one_line(tensors), amount=amount, line=_one_line(line))
        last = steps[-1] if steps else None
        if last and (last.who, last.name, last.tensors, last.line) == (step.who, step.name, step.tensors, step.line):
            each = (*(last.each or (last.amount,)), amount)
            steps[-1] = last.model_copy(update={"times": last.times + 1, "amount": last.amount + amount, "each": each})
        else:
            steps.append(step)
    return tuple(steps)


def _one_line(text: str) -> str:
    return " ".join(re.sub(r"[`#]", " ", text).split())[:_MOST_TEXT]


def add_remarks(
    result: CheckResult, trial: Trial, secret_inputs: SecretInputs, seeds: int, others: Sequence[SecretInputs], *, twice: bool
) -> tuple[CheckResult, str]:
    """Adds notes on a correct program: does it accept inputs in another memory layout, and the first of `others`, parameters,
    after its first calls? These come last, since its worker may die of them. Returns also a note where it is wrong with these
    parameters, which is true if a new worker is right with them (`check_anew`). `twice`: whether memory holds another instance,
    beside which it must stay right, and new ones with the rest of `others`. Last come other modes of torch's gradients.
    """
    bounds, done, note = secret_inputs.bounds(seeds), 0, ""
    other = others[0] if others else None
    wrong: list[str] = []
    last, allowed = (other, wide_bounds(secret_inputs, other)) if other is not None else (secret_inputs, bounds)
    try:
        for given in (inputs for inputs in secret_inputs.sets[:seeds] if inputs.lenient):
            trial.remark(try_other_layout(trial, given, bounds))
            done += 1
        trial.remark(try_other_layout(trial, secret_inputs.sets[0], bounds, pitched=True))
        if other is not None:
            note = try_other_parameters(trial, other, allowed)
            for remark in other.notes:
                trial.remark(remark)
            if twice and not note:
                wrong = try_second_instance(trial, secret_inputs, other, allowed)
            for far in others[1:] if twice and not note else ():
                if not wrong:
                    last, allowed = far, wide_bounds(secret_inputs, far)
                    wrong = [f"{_with(far)}, {reason}" for reason in try_new_instance(trial, far, allowed)]
        if not note and not wrong:
            wrong = try_modes(trial, last.sets[0], allowed, secret_inputs.sets[1 % len(secret_inputs.sets)])
    except WorkerFailed as failure:
        return failed_check(trial, failure, outputs=result.outputs, seeds=result.seeds), ""
    new = [remark for remark in trial.notes if remark not in result.notes]
    found = {"seeds": result.seeds + done, "notes": (*result.notes, *new)}
    return result.model_copy(update=found | ({"ok": False, "reasons": tuple(wrong)} if wrong else {})), note


def check_anew(
    result: CheckResult, trial: Trial, program: Path, secret_inputs: SecretInputs, other: SecretInputs, note: str
) -> CheckResult:
    """Loads a correct program into the new worker of `trial` with the parameters of `other`, and calls it. Adds `note` if
    it is right there: it only keeps what it loaded first. Else it is refused: it is right with some parameters only."""
    reasons: list[str] = []
    try:
        trial.load(program)
        for given in other.sets:
            found = trial.compare(given, trial.call(given, same_addresses=False), wide_bounds(secret_inputs, other))[1]
            reasons = reasons or found
    except WorkerFailed as failure:
        failed = failed_check(trial, failure, outputs=result.outputs, seeds=result.seeds)
        return failed.model_copy(update={"reasons": tuple(f"{_with(other)}, {reason}" for reason in failed.reasons)})
    if not reasons:
        notes = result.notes if note in result.notes else (*result.notes, note)
        return result.model_copy(update={"notes": notes})
    return result.model_copy(update={"ok": False, "reasons": tuple(f"{_with(other)}, {reason}" for reason in reasons)})


def _with(other: SecretInputs) -> str:
    """The parameters of a call, for a sentence."""
    return f"with parameters far from the constructor's ({KINDS[other.kind].what})" if other.kind else _OTHER


def _refuse_traced(work: RecordedWork) -> list[str]:
    """Returns why a program is refused by what a trace of the GPU shows."""
    reasons = []
    if work.late:
        what = work.late[0][:_MOST_NAMED]
        reasons.append(f"work in another stream goes on after the call returned ({what}): join it to the caller's stream")
    if work.again < work.launches:
        reasons.append(
            f"it launches {counted(work.launches, 'kernel')} of its own for new inputs and {work.again} for the same ones "
            "again: results of earlier calls are remembered"
        )
    return reasons


def _variant(given: InputSet) -> str:
    return "" if given.variant == GIVEN else f" ({describe(given.variant)})"


def _held_back(strict: Sequence[InputSet]) -> Sequence[InputSet | None]:
    """The sets of which one is held back for the many further calls, so that its inputs are new there: never the first."""
    return strict[1:3] if len(strict) > 2 else [None]


def _much_later(trial: Trial, given: InputSet, bounds: dict[str, Bound]) -> list[str]:
    """Makes many more calls, one of which is compared without the program knowing which, then a call like the first ones.
    Returns why the program is refused."""
    answer = trial.repeat(given, calls=secrets.randbelow(_MORE_CALLS) + _MORE_CALLS, seconds=_MORE_S)
    _, reasons = trial.compare(given, answer, bounds)
    if reasons:
        return [f"in one of {counted(answer.reply.calls, 'more call')}, {reason}{_variant(given)}" for reason in reasons]
    most = max(_FEWEST_KEPT, answer.reply.calls / 2)
    for number, what in ((answer.reply.kept, "used tensor"), (answer.reply.opened, "open file")):
        if number >= most:
            return [f"of {counted(answer.reply.calls, 'call')} it keeps {counted(number, what)}: they would run out"]
    _, reasons = trial.compare(given, trial.call(given, same_addresses=False), bounds)
    return [f"after {counted(answer.reply.calls, 'more call')}, {reason}{_variant(given)}" for reason in reasons]


def _overwritten(trial: Trial, given: InputSet) -> list[str]:
    """Returns a reason if outputs that the worker keeps, of a call on `given`, changed during later calls."""
    changed = trial.find_overwritten(given)
    if not changed:
        return []
    what = ", ".join(changed[:4])
    return [f"{what} of an earlier call changed during later calls: return fresh tensors, not a buffer in use"]


def failed_check(
    trial: Trial, failure: WorkerFailed, *, outputs: tuple[OutputError, ...] = (), seeds: int = 0
) -> CheckResult:
    """The result for a program that could not be run to the end. Its tier is "compiled", which means "not judged", if the
    simulator refuses it or it cannot be watched."""
    notes = tuple(trial.notes)
    if failure.kind in ("refused", "unwatched"):
        reason = f"could not judge: {failure}"
        note = "the simulator cannot run this program; a GPU can judge it"
        notes = (*notes, note) if failure.kind == "refused" else ()
        return CheckResult(ok=False, tier="compiled", reasons=(reason,), notes=notes)
    return CheckResult(ok=False, tier=trial.tier, seeds=seeds, outputs=outputs, reasons=(str(failure),), notes=notes)


def _keep_worst(worst: dict[str, OutputError], errors: list[OutputError]) -> None:
    def badness(error: OutputError) -> tuple[bool, float]:
        return (not error.ok, error.max_error / error.max_bound if error.max_bound else error.max_error)

    for found in errors:
        before = worst.get(found.name, found)
        worse = found if badness(found) > badness(before) else before
        needed = [error.tolerance for error in (before, found) if error.tolerance is not None]
        worst[found.name] = worse.model_copy(update={"tolerance": max(needed, default=None)})
