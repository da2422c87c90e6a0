"""Draws the input sets of timed calls, and gets the outputs that the reference computes for the contents of such a call.

Each timed call gets a set's contents changed by a secret turn, which the timed process has not seen before. `CHECKED_CALLS` of
the calls are compared like any other answer, large tensors by a sample of their own, which is secret until the call has ended.
The reference computes their outputs before anything is timed; if fewer of its values are finite than for the contents as drawn,
less is changed, and a note says so.
Where to look next: `verify/inputs/timed_contents.py` (what a turn does), `verify/timing/rounds.py` (the rounds of calls),
`verify/program/trial.py` (the comparison).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs.reference_requests import Ask, ExpectTurned, FindMovable, InputSet, Lend
from stitchcuda.verify.inputs.secret_inputs import SecretInputs, draw_set
from stitchcuda.verify.inputs.variants import GIVEN
from stitchcuda.verify.messages.program_requests import WrittenTensors
from stitchcuda.verify.messages.request import Request
from stitchcuda.verify.messages.tensor_block import TensorBlock, new_block, snapshot
from stitchcuda.verify.messages.timing_requests import Deliver, PrepareTiming

CHECKED_CALLS = 5                          # timed calls whose outputs are compared
_SETS = 3                                  # input sets, if they are not `_LARGE`
_LARGE = 8 * 2**20                         # bytes of inputs; a larger set is the only one, with many turns
_Answer = TypeVar("_Answer")
Compare = Callable[[InputSet, SecretInputs, "TimedCall"], list[str]]
"""Says what is wrong with a timed call's outputs, given its input set and secret inputs that contain it."""


class QuestionedWorker(Protocol):
    """What timing needs of a worker (`verify/processes/worker.py`)."""

    def ask(self, request: Request[_Answer], *, seconds: float, doing: str) -> _Answer: ...


@dataclass(frozen=True)
class TimedCall:
    """What a worker wrote after one timed call on set `set`, changed by `turn`: copies of the blocks `outputs` and
    `inputs_after`, on the host."""

    set: int
    turn: int
    written: WrittenTensors
    blocks: dict[str, TensorBlock]


@dataclass
class TimedInputs:
    """The contents of timed calls, as the judge knows them, with the outputs that are expected for them."""

    secret_inputs: SecretInputs            # the parameters that all workers hold
    sets: list[InputSet]
    moving: list[list[int]]                # the tensors that a turn rolls (`timed_contents.find_movable`)
    scaled: bool                           # whether a turn scales floats too
    planned: list[tuple[int, int]]         # (set, turn) of the calls whose outputs will be compared
    notes: list[str] = field(default_factory=list)
    _ask: Ask | None = None
    _compare: Compare | None = None
    _turned: dict[tuple[int, int], InputSet] = field(default_factory=dict)
    _drawn: dict[int, tuple[InputSet, int]] = field(default_factory=dict)  # unchanged sets; how many outputs are finite
    _samples: dict[tuple[int, int], int] = field(default_factory=dict)  # seeds, which a worker is told after its call

    def preparation(self, *, trusted: bool, core: int | None = None) -> PrepareTiming:
        """Returns the request to prepare for timing. `trusted`: it goes to the reference's worker. `core`: for main threads."""
        assert self._ask is not None
        inputs = tuple(input_set.inputs for input_set in self.sets)
        lent = inputs if trusted else self._ask(Lend(inputs)).blocks
        return PrepareTiming(
            inputs=list(lent),
            structures=[input_set.structure for input_set in self.sets],
            draw_seeds=[input_set.draw_seed for input_set in self.sets],
            moving=self.moving,
            scaled=self.scaled,
            restore=[name.removeprefix("buffer:") for name in self.sets[0].names if name.startswith("buffer:")],
            core=core,
            state=self.secret_inputs.state if trusted else None,
        )

    def at_most_bytes(self) -> int:
        """An upper bound on the bytes that a call reads and writes."""
        return self.sets[0].inputs.size + self.sets[0].expected.size

    def input_bytes(self) -> list[int]:
        """The bytes of each input tensor of a call."""
        return [fact.bytes for fact in self.sets[0].input_facts]

    def output_bytes(self) -> int:
        """The bytes of all outputs of a call together."""
        each = zip(self.sets[0].names, self.sets[0].output_facts, strict=True)
        return sum(fact.bytes for name, fact in each if name.startswith("output"))

    def receive(self, worker: QuestionedWorker, number: int, turn: int, *, seconds: float) -> TimedCall:
        """Asks a worker for the outputs of its last call, which was on set `number` changed by `turn`. Raises `WorkerFailed`,
        and `OSError` where there is no memory to copy them."""
        given = self.answer_turn(number, turn)
        rooms = {"outputs": new_block(given.most_bytes, "cpu"), "inputs_after": new_block(given.most_bytes, "cpu")}
        written = worker.ask(Deliver(sample=self._sample(number, turn), **rooms), seconds=seconds, doing="being timed")
        # Copied now: what the worker writes there after its call is of no use to it.
        return TimedCall(number, turn, written, {what: snapshot(block) for what, block in rooms.items()})

    def wrong(self, delivered: list[TimedCall]) -> list[str]:
        """Says what is wrong with the first wrong call, or []. The bounds are pooled over all calls."""
        assert self._compare is not None
        sets = [self.answer_turn(call.set, call.turn) for call in delivered]
        pooled = SecretInputs(state=self.secret_inputs.state, renewed=self.secret_inputs.renewed, sets=sets)
        for given, call in zip(sets, delivered, strict=True):
            if reasons := self._compare(given, pooled, call):
                return reasons
        return []

    def answer_turn(self, number: int, turn: int) -> InputSet:
        """Set `number` changed by `turn`, with the outputs that the reference computes for it."""
        if (number, turn) not in self._turned:
            self._turned[number, turn] = self._ask_reference(number, turn, self.moving)[0]
        return self._turned[number, turn]

    def stays_finite(self) -> bool:
        """Whether the reference computes as many finite values for the planned contents as for the sets as drawn."""
        try:
            for number, turn in self.planned:
                if number not in self._drawn:
                    self._drawn[number] = self._ask_reference(number, 0, [])
                as_drawn, finite = self._drawn[number]
                moved, still_finite = self._ask_reference(number, turn, self.moving)
                if moved.names != as_drawn.names or still_finite < finite:
                    return False
                self._turned[number, turn] = moved
        except BadInput:
            return False
        return True

    def _ask_reference(self, number: int, turn: int, moving: list[list[int]]) -> tuple[InputSet, int]:
        """Has the reference compute set `number` changed by `turn`; returns that set and how many output values are finite."""
        assert self._ask is not None
        given, state, sample = self.sets[number], self.secret_inputs.state, self._sample(number, turn)
        answer = self._ask(ExpectTurned(given, state, turn, moving, scaled=self.scaled, sample=sample))
        return answer.set, answer.finite

    def _sample(self, number: int, turn: int) -> int:
        """The seed of the elements of large tensors that are compared after this call, another for each."""
        return self._samples.setdefault((number, turn), secrets.randbits(31))


def draw(ask: Ask, secret_inputs: SecretInputs, compare: Compare, *, integers: bool = True) -> TimedInputs:
    """Draws the input sets for timing, `secret_inputs.sets[0]` among them, and finds out what a turn may change in them.

    `integers`: whether integers may be reordered. Tries to change all it may, then floats only, then without scaling, and takes
    the first way in which the reference stays finite.
    """
    fresh = SecretInputs(state=secret_inputs.state, renewed=secret_inputs.renewed)
    sets = [secret_inputs.sets[0]]
    if sets[0].inputs.size <= _LARGE:
        sets += [draw_set(ask, fresh, variants=[GIVEN]) for _ in range(1, _SETS)]
    found = ask(FindMovable(tuple(input_set.inputs for input_set in sets)))
    moving, floats = found.moving, found.floats
    planned = [(number % len(sets), secrets.randbits(31)) for number in range(CHECKED_CALLS)]
    made = TimedInputs(secret_inputs, sets, [], True, planned, _ask=ask, _compare=compare)
    ways = [(scaled, those) for those in ((moving, floats) if integers else (floats,)) for scaled in (True, False) if those]
    for made.scaled, made.moving in [*ways, (False, [])]:
        if not made.moving or made.stays_finite():
            break
        made._turned.clear()
    moved = [position for position, *_ in made.moving]
    if not moved:
        made.notes.append(
            f"the contents of timed calls repeat ({len(sets)} input sets): the reference's inputs cannot be moved on"
        )
    elif still := [f"{place}" for place in found.ordered if place not in moved]:
        made.notes.append(f"inputs that timed calls get as drawn, in order or integers: {', '.join(still)}")
    return made
