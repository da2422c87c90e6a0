"""Uses a program as its first calls do not: in another memory layout, with parameters that are loaded later, with a second
instance of ModelNew in the process, with gradients enabled and in inference mode.

What a program need not take is a note of the verdict, and not a reason against it. It does not decide what is tried when.
Where to look next: `verify/judge/correctness.py` (who asks), `verify/program/trial.py` (the calls).
"""

from __future__ import annotations

from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.reference_requests import InputSet
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, shorten_list
from stitchcuda.verify.messages.program_requests import GradientMode
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.call_form import settings_fault
from stitchcuda.verify.program.trial import MOST_NAMED, Trial

_MODES: dict[GradientMode, str] = {
    "enable_grad": "with gradients enabled, for inputs that require them", "inference_mode": "under torch.inference_mode()",
}  # fmt: skip


def try_other_layout(trial: Trial, given: InputSet, bounds: dict[str, Bound], *, pitched: bool = False) -> str:
    """Calls the program on inputs in a layout that `get_inputs()` never gives: that of `given`, or `pitched`, as parts of
    longer rows. Returns a note where it is wrong, else "": a program need not take them. Random numbers may follow from the
    layout: then nothing is found out. Raises `WorkerFailed` for tampering only."""
    if trial.built.draws:
        return ""
    inputs = "inputs that are parts of longer rows, as x[:, :64] is," if pitched else f"{given.variant} inputs"
    try:
        wrong = trial.compare(given, trial.call(given, same_addresses=False, pitched=pitched), bounds)[1]
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        return f"limited: {inputs} are not taken: {str(failure)[:200]}"
    return f"limited: {inputs} are read wrongly; pass them as get_inputs() lays them out" if wrong else ""


def try_other_parameters(trial: Trial, other: SecretInputs, bounds: dict[str, Bound]) -> str:
    """Loads other parameters after the first calls and calls the program. Returns a note where it is wrong, else "".

    From then on the trial compares with `other`, so this is the last request to a worker. Raises `WorkerFailed` for
    tampering only.
    """
    try:
        trial.load_parameters(other)
        given = other.sets[0]
        wrong = trial.compare(given, trial.call(given, same_addresses=False), bounds)[1]
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        return f"limited: parameters cannot be loaded again after the first call: {str(failure)[:200]}"
    return "limited: parameters loaded after the first call are not taken over: load them before" if wrong else ""


def try_second_instance(trial: Trial, first: SecretInputs, other: SecretInputs, bounds: dict[str, Bound]) -> list[str]:
    """To be asked after `try_other_parameters`: constructs ModelNew once more, with the parameters of `first`, and
    calls both instances. Returns what is wrong with either. Raises `WorkerFailed` for tampering only."""
    try:
        trial.add_instance(first)
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        trial.remark(f"limited: ModelNew cannot be constructed twice in a process: {str(failure)[:MOST_NAMED]}")
        return []
    try:
        for used in (first, other):
            if used is other:
                trial.exchange_instances(other)
            given = used.sets[0]
            if wrong := trial.compare(given, trial.call(given, same_addresses=False), bounds)[1]:
                return [f"with two instances of ModelNew in one process, {reason}" for reason in wrong]
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        return [f"with two instances of ModelNew in one process, {failure}"]
    return []


def try_new_instance(trial: Trial, other: SecretInputs, bounds: dict[str, Bound]) -> list[str]:
    """Constructs ModelNew once more, with the parameters of `other`, and calls it. Returns what is wrong, also where it
    fails; nothing where it cannot be constructed, which `try_second_instance` notes. Raises `WorkerFailed` for tampering
    only."""
    try:
        trial.add_instance(other)
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        return []
    try:
        for given in other.sets:
            if wrong := trial.compare(given, trial.call(given, same_addresses=False), bounds)[1]:
                return wrong
    except WorkerFailed as failure:
        if failure.kind == "tampering":
            raise
        return [str(failure)]
    return []


def try_modes(trial: Trial, given: InputSet, bounds: dict[str, Bound], before: InputSet) -> list[str]:
    """Calls the program with gradients enabled and in inference mode, on the inputs `before` and then on `given`, of which
    the values are compared. These should be the last calls: what it makes of its state in inference mode cannot be written
    to later. Returns what is wrong; where it fails, a note is enough. Raises `WorkerFailed` for tampering only."""
    for mode, how in _MODES.items():
        try:
            trial.call(before, same_addresses=False, mode=mode, hold=True)
            answer = trial.call(given, same_addresses=False, mode=mode)
            wrong = trial.compare(given, answer, bounds, values_only=True)[1]
            wrong += settings_fault(trial.built.habits, answer.reply)
            if changed := trial.find_overwritten(given):
                wrong.append(f"{shorten_list(changed)} of an earlier call changed during a later one: return fresh tensors")
        except WorkerFailed as failure:
            if failure.kind == "tampering":
                raise
            trial.remark(f"limited: it cannot be called {how}: {str(failure)[:MOST_NAMED]}")
            continue
        if wrong:
            return [f"{how}, {reason}" for reason in wrong]
    return []
