"""One program sits an exam: every question that correctness rests on, in order. Decides correctness.

A program's failure is a `CheckResult`, never an exception. Where to look next: `verify/program/trial.py` (how a question is
asked), `verify/judge/examination.py` (who sits which exam), `verify/ablation/own_work.py` (what comes after).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from stitchcuda.counts import counted
from stitchcuda.state import CheckResult, OutputError
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.secret_inputs import GIVEN, InputSet, SecretInputs
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import ProgramAnswer, Trial, read_count, same_bits

_MORE_CALLS = 64                           # in the last verification: between this and twice as many, as far as the time goes
_MORE_S = 1.0


def sit(
    trial: Trial, exam: SecretInputs, seeds: int, *, final: bool, profile: bool, others: Sequence[InputSet] = (),
    still: Callable[[], object] = lambda: None,
) -> CheckResult:  # fmt: skip
    """Run the exam's first `seeds` input sets; stops at the first that fails. Worker failures become reasons.

    The first set is called twice, at old and at new addresses, which also says whether the program is deterministic. `final`:
    all sets are, many more calls follow before the last look, and `others` (of other sizes) are tried. `profile`: shares come
    from the device's own clock (GPU), once `still` says that nobody else of ours works there.
    """
    worst: dict[str, OutputError] = {}
    reasons: list[str] = []
    shares: dict[str, Any] = {}
    deterministic: bool | None = None
    first: ProgramAnswer | None = None
    fewer: list[bool] = []                 # own kernels for the same inputs again, by input set
    done = 0
    bounds = exam.bounds(seeds)
    asked = [inputs for inputs in exam.sets[:seeds] if not inputs.lenient]
    kept = secrets.choice(_kept(asked)) if final else None
    try:
        for number, given in enumerate(inputs for inputs in asked if inputs is not kept):
            answer = trial.call(given, same_addresses=True, hold=number == 0)
            first = first or answer
            shares = shares or answer.reply
            errors, reasons = trial.compare(given, answer, bounds)
            _keep_worst(worst, errors)
            if not reasons and (number == 0 or final):
                again = trial.call(given, same_addresses=False)
                shares = again.reply       # a first call may warm up, build or record
                errors, reasons = trial.compare(given, again, bounds)
                reasons = [f"on a second call with the same inputs, {reason}" for reason in reasons]
                _keep_worst(worst, errors)
                same = again.values.keys() == answer.values.keys() and all(
                    same_bits(answer.values[name], value) for name, value in again.values.items()
                )
                deterministic = same if deterministic is None else deterministic and same
                fewer.append(read_count(again.reply, "launches") < read_count(answer.reply, "launches"))
            done += 1
            if reasons:
                reasons = [f"{reason}{_variant(given)}" for reason in reasons]
                break
        for given in others if not reasons else ():
            allowed = exam.bounds_of([*exam.sets[:seeds], given])
            _, reasons = trial.compare(given, trial.call(given, same_addresses=False), allowed)
            if reasons:
                reasons = [f"at another size that its shape guard allows, {reason}" for reason in reasons]
                break
        if not reasons and len(fewer) > 1 and all(fewer):
            reasons = [
                "it launches fewer kernels of its own for inputs that it has seen: results of earlier calls are remembered"
            ]
        if not reasons and final:
            reasons = _much_later(trial, kept or exam.sets[0], bounds)
            done += kept is not None
        if not reasons and first is not None:
            reasons = _overwritten(trial, exam.sets[0], first)
        if not reasons and profile:
            still()
            shares = trial.profile(exam.sets[0])
            reasons = _traced(shares)
    except WorkerFailed as failure:
        return failed(trial, failure, outputs=tuple(worst.values()), seeds=done)
    return CheckResult(
        ok=not reasons,
        tier=trial.tier,
        seeds=done,
        outputs=tuple(worst.values()),
        reasons=tuple(reasons),
        own_share=_share(shares, "own"),
        elsewhere=read_count(shares, "elsewhere"),
        boundary=min(read_count(shares, "boundary"), read_count(shares, "elsewhere")),
        host_share=_share(shares, "host_share"),
        host_bytes=read_count(shares, "host_bytes"),
        vendor_share=_share(shares, "vendor"),
        framework_share=_share(shares, "framework"),
        launches=read_count(shares, "launches"),
        deterministic=deterministic,
        notes=(*trial.notes, *filter(None, [exam.note])),
        host_seen=("cuda_graph",) if read_count(shares, "replays") else (),
        protections=trial.protections.on,
        unprotected=tuple(f"{name}: {why}" for name, why in trial.protections.denied),
    )


def remarked(
    result: CheckResult, trial: Trial, exam: SecretInputs, seeds: int, *, reload: Callable[[], SecretInputs | None]
) -> CheckResult:
    """What else there is to say of a program that is right: what it makes of inputs in another layout, and of other parameters
    (`reload` draws them) after its first calls. Its worker need not survive that: these are the last questions.
    """
    bounds, done = exam.bounds(seeds), 0
    try:
        for given in (inputs for inputs in exam.sets[:seeds] if inputs.lenient):
            trial.remark(trial.try_other_layout(given, bounds))
            done += 1
        if trial.state_names and (other := reload()) is not None:
            trial.remark(trial.try_other_parameters(other))
    except WorkerFailed as failure:
        return failed(trial, failure, outputs=result.outputs, seeds=result.seeds)
    new = [note for note in trial.notes if note not in result.notes]
    return result.model_copy(update={"seeds": result.seeds + done, "notes": (*result.notes, *new)})


def _traced(shares: dict[str, Any]) -> list[str]:
    """What a trace of the device says against a program (GPU)."""
    reasons = []
    if shares["late"]:
        what = shares["late"][0]
        reasons.append(f"work in another stream goes on after the call returned ({what}): join it to the caller's stream")
    if shares["again"] < shares["launches"]:
        reasons.append(
            f"it launches {counted(shares['launches'], 'kernel')} of its own for new inputs and {shares['again']} for the same "
            "ones again: results of earlier calls are remembered"
        )
    return reasons


def _variant(given: InputSet) -> str:
    return "" if given.variant == GIVEN else f" (inputs: {given.variant})"


def _kept(asked: Sequence[InputSet]) -> Sequence[InputSet | None]:
    """The sets of which one is kept for the last: not the first, and not those that say something beside it only."""
    return asked[1:3] if len(asked) > 2 else [None]


def _much_later(trial: Trial, given: InputSet, bounds: dict[str, Bound]) -> list[str]:
    """A program must be right for good, and where nothing tells it that it is judged: more calls, as many as fit into a second,
    one of them compared, whose inputs it has not seen before; then a call like the first ones."""
    answer = trial.repeat(given, calls=secrets.randbelow(_MORE_CALLS) + _MORE_CALLS, seconds=_MORE_S)
    _, reasons = trial.compare(given, answer, bounds)
    if reasons:
        return [f"in one of {read_count(answer.reply, 'calls')} more calls, {reason}{_variant(given)}" for reason in reasons]
    _, reasons = trial.compare(given, trial.call(given, same_addresses=False), bounds)
    return [f"after {read_count(answer.reply, 'calls')} more calls, {reason}{_variant(given)}" for reason in reasons]


def _overwritten(trial: Trial, given: InputSet, first: ProgramAnswer) -> list[str]:
    """A caller who keeps a result must still have it after later calls."""
    now = trial.reread(given)
    changed = [name for name, value in first.values.items() if name not in now or not same_bits(value, now[name])]
    if not changed:
        return []
    what = ", ".join(changed[:4])
    return [f"{what} of an earlier call changed during later calls: return fresh tensors, not a buffer in use"]


def failed(
    trial: Trial, failure: WorkerFailed, *, outputs: tuple[OutputError, ...] = (), seeds: int = 0
) -> CheckResult:
    """A program that could not be run to the end. What the simulator refuses, or what cannot be watched, was not judged: the
    tier falls to compiled."""
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
        if found.name not in worst or badness(found) > badness(worst[found.name]):
            worst[found.name] = found


def _share(said: dict[str, Any], name: str) -> float:
    value = said.get(name, 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0
