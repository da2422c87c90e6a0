"""One program sits an exam: loaded in a fresh worker, called on each input set, its tensors compared. Decides correctness.

Compared are structure, shapes, dtypes, NaN patterns, values (`bound.py`), buffers the reference updates, and that inputs and
other state stay as they were. A program's failure is a `CheckResult`, never an exception. Where to look next: `judge.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stitchcuda.state import CheckResult, OutputError, Precision, Target, Tier
from stitchcuda.tools import bound, wire
from stitchcuda.tools.bound import Bound
from stitchcuda.tools.exam import Exam, InputSet
from stitchcuda.sandbox.limits import Limits
from stitchcuda.tools.wire import WireError
from stitchcuda.tools.worker import Worker, WorkerFailed


@dataclass(frozen=True)
class Construction:
    """What the reference worker said about constructing the model: arguments, seed, mode, names of its state."""

    init: Path
    init_structure: Any
    init_seed: int
    training: bool
    state_names: list[str]
    precision: Precision


class Trial:
    """One program in one worker."""

    def __init__(self, worker: Worker, exam: Exam, built: Construction, target: Target, bounds: Limits) -> None:
        self._worker = worker
        self._exam = exam
        self._built = built
        self.tier: Tier = "timed" if target == "cuda" else "simulated"
        self._limits = bounds
        self.state_names = built.state_names
        self.notes: list[str] = [exam.note] if exam.note else []
        self.loaded: dict[str, Any] = {}

    def load(self, program: Path, *, cache: Path, arch: str) -> None:
        """Build and construct the program with the exam's parameters. Raises `WorkerFailed`."""
        self._worker.code = program if program.is_dir() else program.parent
        self.loaded = self._worker.ask(
            "load",
            seconds=self._limits.start_s,
            doing="building and constructing ModelNew",
            program=str(program),
            cache=str(cache),
            arch=arch,
            init=str(self._built.init),
            init_structure=self._built.init_structure,
            init_seed=self._built.init_seed,
            training=self._built.training,
            precision=self._built.precision,
            state=str(self._exam.state),
            state_names=self._built.state_names,
            state_changed=self._exam.renewed,
        )
        if self.loaded.get("note"):
            self.notes.append(str(self.loaded["note"]))
            self.state_names = []

    def call(self, given: InputSet, *, same_addresses: bool) -> Answer:
        """One forward. Raises `WorkerFailed`."""
        scratch = self._worker.scratch
        paths = {what: scratch / what for what in ("outputs", "inputs_after", "state_after")}
        answer = self._worker.ask(
            "call",
            seconds=self._limits.call_s,
            doing="running forward",
            inputs=str(given.inputs),
            structure=given.structure,
            same_addresses=same_addresses,
            **{what: str(path) for what, path in paths.items()},
        )
        allowed = 2 * given.expected.stat().st_size + 2 * given.inputs.stat().st_size + 2**20
        try:
            outputs = wire.read_tensors(paths["outputs"], limit_bytes=allowed)
            after = wire.read_tensors(paths["inputs_after"], limit_bytes=2 * given.inputs.stat().st_size + 2**20)
            state = wire.read_tensors(paths["state_after"], limit_bytes=2 * self._exam.state.stat().st_size + 2**20)
            names = _named(answer.get("structure"))
            values = {name: outputs[position] for name, position in names.items()}
        except (WireError, IndexError, OSError) as error:
            raise WorkerFailed("error", f"the program's outputs cannot be read: {error}") from error
        return Answer(values, after, dict(zip(self.state_names, state, strict=False)), answer)

    def judged(self, given: InputSet, answer: Answer, bounds: dict[str, Bound]) -> tuple[list[OutputError], list[str]]:
        """(every output and updated buffer against its bound, sentences on everything that is wrong)."""
        expected, exact = given.answers()
        errors: list[OutputError] = []
        reasons: list[str] = []
        outputs = [name for name in given.names if not name.startswith(("buffer:", "input:"))]
        if set(answer.values) != set(outputs):
            reasons.append(f"the program returns {_listed(answer.values)} where the reference returns {_listed(outputs)}")
        before_inputs = wire.read_tensors(given.inputs)
        before_state = dict(zip(self.state_names, wire.read_tensors(self._exam.state), strict=False))
        for name, own, true in zip(given.names, expected, exact, strict=True):
            kind, _, key = name.partition(":")
            if kind == "buffer":
                value = answer.state.get(key)
                if key not in self.state_names:
                    self._note(f"buffer {key} is not in the state_dict and was not compared")
            elif kind == "input":
                value = answer.inputs[int(key)] if key.isdigit() and int(key) < len(answer.inputs) else None
            else:
                value = answer.values.get(name)
            if value is not None and kind == name and value.shape == own.shape and value.stride() != own.stride():
                self._note(f"{name} has strides {tuple(value.stride())}, the reference's has {tuple(own.stride())}")
            if value is not None:
                errors.append(bound.judge(name, value, own, true, bounds[name]))
        reasons += [_sentence(one) for one in errors if not one.ok]
        changed = {name.partition(":")[2] for name in given.names if name.startswith("input:")}
        for position, (before, after) in enumerate(zip(before_inputs, answer.inputs, strict=False)):
            if str(position) not in changed and not _same_bits(before, after):
                reasons.append(f"the program writes into its input {position}, which the reference leaves alone")
        updated = {name.partition(":")[2] for name in given.names if name.startswith("buffer:")}
        for name, before in before_state.items():
            if name not in updated and name in answer.state and not _same_bits(before, answer.state[name]):
                reasons.append(f"the program changes {name}, which the reference leaves alone")
        return errors, reasons

    def profile(self, given: InputSet) -> dict[str, Any]:
        """Device time by kernel of one call (GPU only). Raises `WorkerFailed`."""
        return self._worker.ask(
            "profile",
            seconds=self._limits.call_s,
            doing="running forward under the profiler",
            inputs=str(given.inputs),
            structure=given.structure,
        )

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class Answer:
    """What the judge read back from one call: outputs by path, inputs and state after it, and the worker's own words."""

    values: dict[str, torch.Tensor]
    inputs: list[torch.Tensor]
    state: dict[str, torch.Tensor]
    said: dict[str, Any]


def sit(trial: Trial, exam: Exam, seeds: int, *, repeat_all: bool, profile: bool) -> CheckResult:
    """Run the exam's first `seeds` input sets; stops at the first that fails. Worker failures become reasons.

    The first set is called twice, at old and at new addresses (all sets with `repeat_all`), which also says whether the
    program is deterministic. `profile`: shares come from the device's own clock (GPU).
    """
    worst: dict[str, OutputError] = {}
    reasons: list[str] = []
    shares: dict[str, Any] = {}
    deterministic: bool | None = None
    done = 0
    bounds = exam.bounds(seeds)
    try:
        for number, given in enumerate(exam.sets[:seeds]):
            answer = trial.call(given, same_addresses=True)
            shares = answer.said
            errors, reasons = trial.judged(given, answer, bounds)
            _keep_worst(worst, errors)
            if not reasons and (number == 0 or repeat_all):
                again = trial.call(given, same_addresses=False)
                shares = again.said        # a first call may warm up, build or record
                errors, reasons = trial.judged(given, again, bounds)
                reasons = [f"on a second call with the same inputs, {reason}" for reason in reasons]
                _keep_worst(worst, errors)
                same = all(_same_bits(answer.values[name], value) for name, value in again.values.items())
                deterministic = same if deterministic is None else deterministic and same
            done += 1
            if reasons:
                break
        if not reasons and profile:
            shares = trial.profile(exam.sets[0])
    except WorkerFailed as failure:
        return failed(trial, failure, outputs=tuple(worst.values()), seeds=done)
    return CheckResult(
        ok=not reasons,
        tier=trial.tier,
        seeds=done,
        outputs=tuple(worst.values()),
        reasons=tuple(reasons),
        own_share=_share(shares, "own"),
        vendor_share=_share(shares, "vendor"),
        framework_share=_share(shares, "framework"),
        launches=int(shares.get("launches", 0)),
        deterministic=deterministic,
        notes=(*trial.notes, *_degenerate(exam.sets[0])),
    )


def failed(
    trial: Trial, failure: WorkerFailed, *, outputs: tuple[OutputError, ...] = (), seeds: int = 0
) -> CheckResult:
    """A program that could not be run to the end. What the simulator refuses was not judged: the tier falls to compiled."""
    notes = tuple(trial.notes)
    if failure.kind == "refused":
        reason = f"could not judge: {failure}"
        note = "the simulator cannot run this program; a GPU can judge it"
        return CheckResult(ok=False, tier="compiled", reasons=(reason,), notes=(*notes, note))
    return CheckResult(ok=False, tier=trial.tier, seeds=seeds, outputs=outputs, reasons=(str(failure),), notes=notes)


def _keep_worst(worst: dict[str, OutputError], errors: list[OutputError]) -> None:
    def badness(one: OutputError) -> tuple[bool, float]:
        return (not one.ok, one.max_error / one.max_bound if one.max_bound else one.max_error)

    for one in errors:
        if one.name not in worst or badness(one) > badness(worst[one.name]):
            worst[one.name] = one


def _sentence(one: OutputError) -> str:
    if one.max_bound == 0.0:
        return f"{one.name} {one.note}"
    return (
        f"{one.name} is wrong: largest error {one.max_error:.3g} where {one.max_bound:.3g} is allowed, "
        f"norm {one.norm_error:.3g} where {one.norm_bound:.3g}; {one.note}"
    )


def _named(structure: Any, name: str = "output") -> dict[str, int]:
    """Paths of the tensors in an encoded result, as `truth.name_outputs` names them, with their positions."""
    if structure is None:
        return {}
    if not isinstance(structure, dict):
        raise WireError(f"{name} is {structure!r:.60}, not a tensor")
    if "tensor" in structure:
        return {name: int(structure["tensor"])}
    if "tuple" in structure or "list" in structure:
        parts = list(enumerate(structure["tuple"] if "tuple" in structure else structure["list"]))
    elif "dict" in structure:
        parts = [(key, value) for key, value in structure["dict"]]
    else:
        raise WireError(f"{name} is a number, not a tensor")
    return {path: i for key, part in parts for path, i in _named(part, f"{name}.{key}").items()}


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.numel() == 0:
        return True
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def _share(said: dict[str, Any], name: str) -> float:
    value = said.get(name, 0.0)
    return min(1.0, max(0.0, float(value))) if isinstance(value, int | float) else 0.0


def _listed(names: Any) -> str:
    listed = list(names)
    return f"{len(listed)} tensors ({', '.join(listed[:4])}{', …' if len(listed) > 4 else ''})" if listed else "nothing"


def _degenerate(given: InputSet) -> list[str]:
    """Facts about outputs that say little: a constant answer would pass."""
    notes = []
    for name, value in zip(given.names, given.answers()[1], strict=True):
        if name.startswith("output") and value.numel() > 1 and bool((value == value.flatten()[0]).all()):
            notes.append(f"the reference's {name} is constant ({float(value.flatten()[0]):.6g}): its check says little")
    return notes
