"""What timed calls are given and what they must return: input sets for timing, and the expectation for any turn of them.

A process that is timed has seen none of it before. Before anything is timed, the reference answers the contents that will be
asked for; where it does not stay as finite with contents that were moved on as with those drawn, less is moved, and a note
says so. What a program delivered, of large tensors a secret sample, is compared like an answer in an exam.
Where to look next: `verify/inputs/timed_contents.py` (what a turn does), `verify/timing/rounds.py`, `verify/program/trial.py`.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch

from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs import timed_contents
from stitchcuda.verify.inputs.secret_inputs import GIVEN, Ask, InputSet, SecretInputs, draw_set, set_paths
from stitchcuda.verify.messages import wire
from stitchcuda.verify.processes.file_grants import grant

CHECKED_CALLS = 5
_SETS = 3
_LARGE = 8 * 2**20                         # bytes of one set from which there is only one, of many turns
Compare = Callable[[InputSet, SecretInputs, "TimedCall"], list[str]]
"""Sentences on what is wrong with a delivery, from the input set it answers and an exam that holds it."""


class QuestionedWorker(Protocol):
    """A worker, as far as timing asks it (`worker.Worker`)."""

    scratch: Path
    desk: Path

    def ask(self, do: str, *, seconds: float, doing: str, **fields: Any) -> dict[str, Any]: ...


@dataclass(frozen=True)
class TimedCall:
    """What a worker wrote after one timed call, read into the judge's memory; `set`, `turn`: the contents it was given."""

    set: int
    turn: int
    structure: Any
    outputs: list[torch.Tensor]
    inputs: list[torch.Tensor]


@dataclass
class TimedInputs:
    """The judge's side of the contents of timed calls."""

    exam: SecretInputs                             # the parameters that all workers hold
    folder: Path
    sets: list[InputSet]
    moving: list[list[int]]                # as `contents.movable` says
    scaled: bool
    planned: list[tuple[int, int]]         # (set, turn) of the contents whose outputs will be asked for
    notes: list[str] = field(default_factory=list)
    _ask: Ask | None = None
    _compare: Compare | None = None
    _turned: dict[tuple[int, int], InputSet] = field(default_factory=dict)
    _drawn: dict[int, tuple[InputSet, int]] = field(default_factory=dict)  # answers to sets as they are; how many finite
    _sample: int = field(default_factory=lambda: secrets.randbits(31))

    @contextlib.contextmanager
    def message(self, desk: Path) -> Iterator[dict[str, Any]]:
        """What a worker is told when it prepares: files, lent to it for as long, and what moves. The answers stay here."""
        with grant(desk, *(input_set.inputs for input_set in self.sets)) as inputs:
            yield {
                "sets": [
                    {"inputs": place, "structure": input_set.structure}
                    for place, input_set in zip(inputs, self.sets, strict=True)
                ],
                "moving": self.moving,
                "scaled": self.scaled,
                "state": str(self.exam.state),  # which the reference's worker alone can read
                "restore": [name.removeprefix("buffer:") for name in self.sets[0].names if name.startswith("buffer:")],
            }

    def at_most_bytes(self) -> int:
        """No fewer than a call reads and writes, at the price of two looks at files."""
        return self.sets[0].inputs.stat().st_size + self.sets[0].expected.stat().st_size

    def input_bytes(self) -> list[int]:
        """Of each input tensor of a call."""
        return [_bytes(tensor) for tensor in wire.read_tensors(self.sets[0].inputs)]

    def output_bytes(self) -> int:
        given = self.sets[0]
        own = wire.read_tensors(given.expected)
        return sum(_bytes(tensor) for name, tensor in zip(given.names, own, strict=True) if name.startswith("output"))

    def receive(self, worker: QuestionedWorker, number: int, turn: int, *, seconds: float) -> TimedCall:
        """Ask a worker for what its last call returned. Raises `WorkerFailed`, or `WireError` when the file lies."""
        given = self.turned(number, turn)
        # Names that it cannot have prepared.
        paths = {what: worker.scratch / f"{what}-{secrets.token_hex(8)}" for what in ("outputs", "inputs_after")}
        size = given.inputs.stat().st_size
        try:
            named = {what: str(path) for what, path in paths.items()}
            answer = worker.ask("time", seconds=seconds, doing="being timed", mode="deliver", sample=self._sample, **named)
            return TimedCall(
                set=number,
                turn=turn,
                structure=answer.get("structure"),
                outputs=wire.read_tensors(paths["outputs"], limit_bytes=given.most_bytes),
                inputs=wire.read_tensors(paths["inputs_after"], limit_bytes=2 * size + 2**20),
            )
        finally:
            for path in paths.values():
                path.unlink(missing_ok=True)

    def wrong(self, delivered: list[TimedCall]) -> list[str]:
        """Sentences on what is wrong with the first of them that is; bounds are pooled over all."""
        assert self._compare is not None
        sets = [self.turned(call.set, call.turn) for call in delivered]
        pooled = SecretInputs(folder=self.folder, state=self.exam.state, renewed=self.exam.renewed, sets=sets)
        for given, call in zip(sets, delivered, strict=True):
            if reasons := self._compare(given, pooled, call):
                return reasons
        return []

    def turned(self, number: int, turn: int) -> InputSet:
        """The input set with its contents moved on, and the reference's answers to it."""
        if (number, turn) not in self._turned:
            self._turned[number, turn] = self._answered(self.sets[number], turn, self.moving)[0]
        return self._turned[number, turn]

    def as_finite(self) -> bool:
        """Whether the reference takes the planned contents as well as those drawn. Its answers are kept."""
        try:
            for number, turn in self.planned:
                if number not in self._drawn:
                    self._drawn[number] = self._answered(self.sets[number], 0, [])
                as_drawn, finite = self._drawn[number]
                moved, as_finite = self._answered(self.sets[number], turn, self.moving)
                if moved.names != as_drawn.names or as_finite < finite:
                    return False
                self._turned[number, turn] = moved
        except BadInput:
            return False
        return True

    def _answered(self, given: InputSet, turn: int, moving: list[list[int]]) -> tuple[InputSet, int]:
        """The contents as the reference answers them, and how many of its values are finite."""
        assert self._ask is not None
        paths = set_paths(self.folder, secrets.token_hex(4))
        answer = self._ask(
            "expect_rolled",
            given=str(given.inputs),
            structure=given.structure,
            turn=turn,
            moving=moving,
            scaled=self.scaled,
            state=str(self.exam.state),
            sample=self._sample,
            **{what: str(path) for what, path in paths.items()},
        )
        return _set(paths, given.structure, answer["names"]), answer["finite"]


def draw(ask: Ask, exam: SecretInputs, folder: Path, compare: Compare, *, integers: bool = True) -> TimedInputs:
    """Timing's input sets, the exam's first among them, and what of their contents can be moved; `integers`: these too."""
    folder.mkdir(parents=True)
    fresh = SecretInputs(folder=folder, state=exam.state, renewed=exam.renewed)
    sets = [exam.sets[0]]
    if sets[0].inputs.stat().st_size <= _LARGE:
        sets += [draw_set(ask, fresh, f"{number}", variants=[GIVEN]) for number in range(1, _SETS)]
    tensors = [wire.read_tensors(input_set.inputs) for input_set in sets]
    found = [timed_contents.find_movable(tensor) for tensor in tensors]
    moving = [pair for pair in found[0] if all(pair in other for other in found)]
    floats = [pair for pair in moving if tensors[0][pair[0]].dtype in timed_contents.FLOATS]
    planned = [(number % len(sets), secrets.randbits(31)) for number in range(CHECKED_CALLS)]
    made = TimedInputs(exam, folder, sets, [], True, planned, _ask=ask, _compare=compare)
    ways = [(scaled, those) for those in ((moving, floats) if integers else (floats,)) for scaled in (True, False) if those]
    for made.scaled, made.moving in [*ways, (False, [])]:
        if not made.moving or made.as_finite():
            break
        made._turned.clear()
    moved = [position for position, *_ in made.moving]
    if not moved:
        made.notes.append(
            f"the contents of timed calls repeat ({len(sets)} input sets): the reference's inputs cannot be moved on"
        )
    elif still := [
        f"{place}" for place, tensor in enumerate(tensors[0]) if place not in moved and timed_contents.order_matters(tensor)
    ]:
        made.notes.append(f"inputs that timed calls get as drawn, in order or integers: {', '.join(still)}")
    return made


def _set(paths: dict[str, Path], structure: Any, names: list[str]) -> InputSet:
    return InputSet(
        inputs=paths["inputs"], structure=structure, names=names, expected=paths["expected"], exact=paths["exact"]
    )


def _bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride != 0 or size == 0 else 1
    return elements * tensor.element_size()


