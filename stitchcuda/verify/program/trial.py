"""One program in one worker, as the judge questions it: load, call, read again, compare. Every failure is a `WorkerFailed`.

Compared are structure, shapes, dtypes, NaN patterns, values (`verify/compare/bound.py`), buffers the reference updates, and
that inputs and other state stay as they were. Which questions are asked, and what follows from the answers, is in
`verify/judge/correctness.py`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import Protections
from stitchcuda.state import OutputError, Precision, Target, Tier
from stitchcuda.tools.build.kernel_names import in_sources
from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.bound import Bound
from stitchcuda.verify.inputs.input_terms import ReferenceTensor
from stitchcuda.verify.inputs.secret_inputs import InputSet, SecretInputs, listed
from stitchcuda.verify.inputs.timed_inputs import TimedCall
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.messages import wire
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.processes.file_grants import lent
from stitchcuda.verify.processes.worker import Worker, WorkerFailed

_CHANGES = 2                               # of a spare tensor: at each of them the program must be wrong
_MOST_NAMED = 200                          # of an output's name in a list of them


@dataclass(frozen=True)
class Construction:
    """What the reference worker said about constructing the model: arguments, seed, mode, names of its state."""

    init: Path
    init_structure: Any
    init_seed: int
    training: bool
    state_names: list[str]
    precision: Precision
    state: tuple[ReferenceTensor, ...] = ()           # what is known of each of these names


class Trial:
    """One program in one worker."""

    def __init__(self, worker: Worker, exam: SecretInputs, built: Construction, target: Target, bounds: Limits) -> None:
        self._worker = worker
        self._exam = exam
        self.built = built
        self.tier: Tier = "timed" if target == "cuda" else "simulated"
        self._limits = bounds
        self.state = built.state
        self.state_names = built.state_names
        self.notes: list[str] = []
        self.load_message: dict[str, Any] = {}    # what the worker was told for that
        self.loaded: dict[str, Any] = {}
        self.own_launches: dict[str, int] = {}  # of own kernels by full name, as the device's trace has them (GPU)
        self.traced: dict[str, Any] = {}   # what the profiler recorded, and whose names are the program's own (GPU)
        self.own: tuple[str, ...] = ()
        self.guessed: list[str] = []       # of the reference's state, what the program was given by shape
        self._held: dict[str, int] = {}    # position of each held output

    def load(self, program: Path, *, cache: Path, arch: str, masked: bool = False) -> None:
        """Build and construct the program with the exam's parameters. Raises `WorkerFailed`.

        `masked`: its kernels are built so that they can be left out one by one (`verify/ablation/ablation.py`).
        """
        self._worker.code = program if program.is_dir() else program.parent
        # Only a foreign program may lack some of the reference's state, and then of what was kept as constructed.
        kept = set(self._exam.kept if self._exam.renewed else self.built.state_names) if program.is_file() else set()
        with lent(self._worker.desk, self.built.init, self._exam.state) as (init, state):
            self.load_message = {
                "program": str(program),
                "cache": str(cache),
                "arch": arch,
                "init": init,
                "init_structure": self.built.init_structure,
                "init_seed": self.built.init_seed,
                "training": self.built.training,
                "precision": self.built.precision,
                "state": state,
                "state_names": self.built.state_names,
                "parameters": [one.name for one in self.built.state if one.parameter],
                "tied": {one.name: one.tied for one in self.built.state},
                "kept": sorted(kept),
                "alike": [name for group in self._exam.alike for name in group],
                "transient": self._exam.transient(self.built.state_names),
                "masked": masked,
                "backwards": self._exam.backwards != masked,
            }
            doing = "building and constructing ModelNew"
            self.loaded = self._worker.ask("load", seconds=self._limits.start_s, doing=doing, **self.load_message)
        self._tell_tampering(self.loaded)
        self.notes += [str(note) for one in self._worker.built for note in one.get("notes", ())]
        self._note_state(kept, program)

    def _note_state(self, kept: set[str], program: Path) -> None:
        """What the program took otherwise than by name: all of this is the judge's own but for which of it is where."""
        if program.is_dir():
            return
        said = {what: self.loaded.get(what) for what in ("missing", "elsewhere", "guessed")}
        missing, elsewhere = ({str(name) for name in one} if isinstance(one := said[what], list) else set()
                              for what in ("missing", "elsewhere"))  # fmt: skip
        guessed = said["guessed"] if isinstance(said["guessed"], dict) else {}
        self.guessed = [name for name in self.built.state_names if name in guessed]
        lacking = [name for name in self.built.state_names if name in self._exam.kept or name in kept & missing]
        if lacking:
            self.notes.append(
                f"limited: the program's state_dict is not the reference's: it lacks {listed(lacking)}; "
                "what it lacks was drawn with the same seed instead of copied"
            )
        if self._exam.alike:
            some = [name for group in self._exam.alike for name in group]
            self.notes.append(f"limited: {listed(some)} had equal values where their shapes are: which is which does not show")
        elif self.guessed:
            pairs = [f"{str(guessed[name])[:_MOST_NAMED]!r} taken for {name!r}" for name in self.guessed]
            self.notes.append(f"{listed(pairs)}, by shape: name them as the reference does, or rename in a load hook")
        gone = elsewhere | (kept & missing)
        self.state_names = [name for name in self.built.state_names if name not in gone]

    def call(self, given: InputSet, *, same_addresses: bool, hold: bool = False) -> ProgramAnswer:
        """One forward. `hold`: its outputs stay alive for `reread`. Raises `WorkerFailed`."""
        paths = self._places()
        with lent(self._worker.desk, given.inputs) as (inputs,):
            answer = self._worker.ask(
                "call",
                seconds=self._limits.call_s,
                doing="running forward",
                inputs=inputs,
                structure=given.structure,
                same_addresses=same_addresses,
                hold=hold,
                **{what: str(path) for what, path in paths.items()},
            )
        return self._read(given, answer, paths, hold=hold)

    def _places(self) -> dict[str, Path]:
        return {what: self._place(what) for what in ("outputs", "inputs_after", "state_after")}

    def _read(self, given: InputSet, answer: dict[str, Any], paths: dict[str, Path], *, hold: bool) -> ProgramAnswer:
        """What a call wrote."""
        self._tell_tampering(answer)
        try:
            outputs = wire.read_tensors(paths["outputs"], limit_bytes=given.most_bytes)
            after = wire.read_tensors(paths["inputs_after"], limit_bytes=2 * given.inputs.stat().st_size + 2**20)
            state = wire.read_tensors(paths["state_after"], limit_bytes=2 * self._exam.state.stat().st_size + 2**20)
            names = wire.named_tensors(answer.get("structure"), range(len(outputs)))
            if len(state) < len(self.state_names):
                raise WireError(f"{len(state)} of {len(self.state_names)} parameters and buffers came back")
            self._held = names if hold else self._held
            values = {name: outputs[position] for name, position in names.items()}
        except (WireError, OSError) as error:
            raise WorkerFailed("error", f"the program's outputs cannot be read: {error}") from error
        finally:
            for path in paths.values():
                _discard(path)
        return ProgramAnswer(values, after, dict(zip(self.state_names, state, strict=False)), answer)

    def reread(self, given: InputSet) -> dict[str, torch.Tensor]:
        """The outputs that were held, as they are now. Raises `WorkerFailed`."""
        path = self._place("outputs")
        self._worker.ask("reread", seconds=self._limits.call_s, doing="showing earlier outputs", outputs=str(path))
        try:
            held = wire.read_tensors(path, limit_bytes=given.most_bytes)
        except (WireError, OSError) as error:
            raise WorkerFailed("error", f"the program's outputs cannot be read: {error}") from error
        finally:
            _discard(path)
        return {name: held[position] for name, position in self._held.items() if position < len(held)}

    def repeat(self, given: InputSet, *, calls: int, seconds: float) -> ProgramAnswer:
        """Up to `calls` further calls within `seconds`, nothing recorded or poisoned; the answer to one of them, at a random
        place in the row, whose inputs are those given. Raises `WorkerFailed`."""
        paths = self._places()
        with lent(self._worker.desk, given.inputs) as (inputs,):
            answer = self._worker.ask(
                "repeat", seconds=self._limits.call_s, doing="running forward", inputs=inputs, structure=given.structure,
                calls=calls, budget_s=seconds, **{what: str(path) for what, path in paths.items()},
            )  # fmt: skip
        return self._read(given, answer, paths, hold=False)

    def _place(self, what: str) -> Path:
        """Where the worker writes next: a name that it cannot have prepared."""
        return self._worker.scratch / f"{what}-{secrets.token_hex(8)}"

    def _tell_tampering(self, answer: dict[str, Any]) -> None:
        """A worker that admits to tampering is believed; one that does not is not thereby cleared."""
        if told := answer.get("tampered"):
            what = "; ".join(map(str, told if isinstance(told, list) else [told]))[:500]
            raise WorkerFailed("tampering", f"the program tampers with the process it runs in: {what}")

    def judged(
        self, given: InputSet, answer: ProgramAnswer, bounds: dict[str, Bound], exam: SecretInputs | None = None
    ) -> tuple[list[OutputError], list[str]]:
        """(every output and updated buffer against its bound, sentences on everything that is wrong). `exam`: whose set it is,
        if not of the one that is sat."""
        whose = exam or self._exam
        known, measures = whose.key(given), whose.measures(given)
        errors: list[OutputError] = []
        reasons: list[str] = []
        outputs = [name for name in given.names if not name.startswith(("buffer:", "input:"))]
        if set(answer.values) != set(outputs):
            reasons.append(f"the program returns {_listed(answer.values)} where the reference returns {_listed(outputs)}")
        before_inputs = known.inputs
        state = dict(zip(self.built.state_names, wire.read_tensors(self._exam.state), strict=False))
        before_state = {name: state[name] for name in self.state_names}
        if len(answer.inputs) < len(before_inputs):
            reasons.append(f"the program's worker gave back {len(answer.inputs)} of {len(before_inputs)} inputs")
        for name, own, true, measure in zip(given.names, known.expected, known.truths, measures, strict=True):
            kind, _, key = name.partition(":")
            if kind == "buffer":
                if answer.state is None:
                    continue
                value = answer.state.get(key)
                if key not in self.built.state_names:
                    self.remark(f"buffer {key} is in no state_dict and was not compared")
                elif value is None:
                    reasons.append(f"the reference updates its buffer {key}, and the program has none of that name")
            elif kind == "input":
                value = answer.inputs[int(key)] if key.isdigit() and int(key) < len(answer.inputs) else None
            else:
                value = answer.values.get(name)
            same_shape = value is not None and kind == name and value.shape == own.shape
            if value is not None and same_shape and not given.lenient and value.stride() != own.stride():
                self.remark(f"{name} has strides {tuple(value.stride())}, the reference's has {tuple(own.stride())}")
            if value is not None:
                errors.append(bound.judge(name, value, own, true, bounds[name], measure))
        reasons += [_sentence(one) for one in errors if not one.ok]
        changed = {name.partition(":")[2] for name in given.names if name.startswith("input:")}
        for position, (before, after) in enumerate(zip(before_inputs, answer.inputs, strict=False)):
            if str(position) not in changed and not same_bits(before, after):
                reasons.append(f"the program writes into its input {position}, which the reference leaves alone")
        updated = {name.partition(":")[2] for name in given.names if name.startswith("buffer:")}
        left = answer.state or {}
        for name, before in before_state.items():
            if name not in updated and name in left and not same_bits(before, left[name]):
                reasons.append(f"the program changes {name}, which the reference leaves alone")
        return errors, reasons

    def delivered(self, given: InputSet, exam: SecretInputs, delivery: TimedCall) -> list[str]:
        """Sentences on what is wrong with the outputs of a timed call on `given`, one of the exam's sets."""
        try:
            values = wire.named_tensors(delivery.structure, delivery.outputs)
        except WireError as error:
            return [f"the outputs cannot be read: {error}"]
        return self.compare(given, ProgramAnswer(values, delivery.inputs, None, {}), exam.bounds(len(exam.sets)), exam)[1]

    def profile(self, given: InputSet) -> dict[str, Any]:
        """Device time by kernel of one call (GPU only). Raises `WorkerFailed`.

        The program's own are the kernels of the libraries that the builder made for it; without any, those in its sources.
        """
        with lent(self._worker.desk, given.inputs) as (inputs,):
            self.traced = self._worker.ask(
                "profile",
                seconds=self._limits.call_s,
                doing="running forward under the profiler",
                inputs=inputs,
                structure=given.structure,
            )
        built = device_time.built_kernels(Path(str(one["path"])) for one in self._worker.built if one.get("path"))
        self.own = built or in_sources(self._worker.code or Path())
        summary = device_time.summary(self.traced, self.own)
        self.own_launches = summary["own_launches"]
        return summary

    def idle(self, seconds: float) -> str:
        """What it did on the device in so many seconds in which nobody called it, as a reason; "" for nothing (GPU only)."""
        try:
            said = self._worker.ask("idle", seconds=seconds + self._limits.call_s, doing="doing nothing", budget_s=seconds)
        except WorkerFailed as failure:
            return str(failure)
        worked = said.get("worked")
        if not isinstance(worked, list):
            return "it does not say what it does while nobody calls it"
        return f"it works on the device while nobody calls it ({str(worked[0])[:_MOST_NAMED]})" if worked else ""

    @property
    def protections(self) -> Protections:
        """What the sandbox has in force around the program."""
        return self._worker.child.protections

    def beyond(self, given: InputSet, bounds: dict[str, Bound]) -> str:
        """What becomes of inputs in a layout that `get_inputs()` never gives, as a note: no program promises to take them."""
        try:
            wrong = self.compare(given, self.call(given, same_addresses=False), bounds)[1]
        except WorkerFailed as failure:
            if failure.kind == "tampering":
                raise
            return f"limited: {given.variant} inputs are not taken: {str(failure)[:200]}"
        return f"limited: {given.variant} inputs are read wrongly; pass them as get_inputs() lays them out" if wrong else ""

    def with_other_parameters(self, other: SecretInputs) -> str:
        """What becomes of parameters that are loaded after the first calls, as a note. The last question to a worker."""
        self._exam = other
        try:
            with lent(self._worker.desk, other.state) as (state,):
                self._worker.ask(
                    "reload", seconds=self._limits.call_s, doing="taking other parameters", state=state,
                    names=self.built.state_names,
                )  # fmt: skip
            given = other.sets[0]
            wrong = self.compare(given, self.call(given, same_addresses=False), other.bounds(1))[1]
        except WorkerFailed as failure:
            if failure.kind == "tampering":
                raise
            return f"limited: parameters cannot be loaded again after the first call: {str(failure)[:200]}"
        return "limited: parameters loaded after the first call are not taken over: load them before" if wrong else ""

    @property
    def spare(self) -> list[int]:
        """How many numbers each tensor has that is the program's own, in its own words."""
        said = self.loaded.get("spare")
        return [max(0, one) if type(one) is int else 0 for one in said] if isinstance(said, list) else []

    @property
    def alike(self) -> list[str]:
        """Of the reference's names, that which each tensor went by that has one value with others, in its own words."""
        said = self.loaded.get("alike")
        return [str(name) for name in said] if isinstance(said, list) else []

    def right(self, given: InputSet, bounds: dict[str, Bound]) -> bool:
        """Whether a call passes. Raises `WorkerFailed`."""
        return all(one.ok for one in self.compare(given, self.call(given, same_addresses=False), bounds)[0])

    def needs(self, number: int, given: InputSet, bounds: dict[str, Bound]) -> bool:
        """Whether the program is wrong, or does not even run, with some other numbers in this one of its tensors: the spare
        ones come first, then those that are alike. What cannot be changed, as a view of hardly any memory, is not needed."""
        for _ in range(_CHANGES):
            changed = False
            try:
                self._worker.ask("disturb", seconds=self._limits.call_s, doing="taking other parameters", number=number)
                changed = True
                if self.is_correct(given, bounds):
                    return False
            except WorkerFailed as failure:
                if failure.kind == "tampering":
                    raise
                return changed
        return True

    def remark(self, note: str) -> None:
        """Say once what was not looked at."""
        if note and note not in self.notes:
            self.notes.append(note)


@dataclass(frozen=True)
class ProgramAnswer:
    """What the judge read back from one call: outputs by path, inputs and state after it, and the worker's own words.

    State is None where it was not asked for.
    """

    values: dict[str, torch.Tensor]
    inputs: list[torch.Tensor]
    state: dict[str, torch.Tensor] | None
    said: dict[str, Any]


def _discard(path: Path) -> None:
    """What cannot be removed, such as a folder that a program made there, goes with the worker's scratch folder."""
    with contextlib.suppress(OSError):
        path.unlink()


def _sentence(one: OutputError) -> str:
    if one.max_bound == 0.0:
        return f"{one.name} {one.note}"
    return (
        f"{one.name} is wrong: largest error {one.max_error:.3g} where {one.max_bound:.3g} is allowed, "
        f"norm {one.norm_error:.3g} where {one.norm_bound:.3g}; {one.note}"
    )


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same bytes in the same order; NaN equals itself."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.numel() == 0:
        return True
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)))


def read_count(reply: dict[str, Any], name: str) -> int:
    """A number that a worker said, or 0 where it is none."""
    value = reply.get(name, 0)
    return value if type(value) is int and 0 < value < 2**63 else 0


def _listed(names: Any) -> str:
    listed = list(names)
    first = ", ".join(name[:_MOST_NAMED] for name in listed[:4])
    return f"{len(listed)} tensors ({first}{', …' if len(listed) > 4 else ''})" if listed else "nothing"


@dataclass(frozen=True)
class LoadedProgram:
    """A program loaded in a worker of its own, with switches for its kernels."""

    worker: Worker
    trial: Trial


Start = Callable[[], AbstractContextManager[LoadedProgram]]
"""Loads the program in a new worker (on a GPU, its masked build)."""
