"""Compares what programs answered with what the reference computed, in the reference worker, on the device it computes on.

A method that takes a request answers the judge; what travels to the judge are figures. What a program wrote is copied into
memory of this process once (`receive`), and only then looked at: a program that writes to its blocks afterwards changes
nothing. What it says of them is never trusted (`verify/messages/tensor_block.py` checks it). Where the GPU's memory does not
suffice, the reference's outputs are computed anew for each comparison if that is faster than to keep them on the host; outputs
are compared a part at a time, then by the CPU, and a remark says so.
Where to look next: `verify/inputs/reference_requests.py` (requests and answers), `verify/program/trial.py` (who asks),
`verify/compare/bound.py` (the rule), `verify/reference/reference_worker.py` (the process).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from stitchcuda.counts import counted
from stitchcuda.state import OutputError
from stitchcuda.verify.compare import bound, degenerate_outputs
from stitchcuda.verify.compare.tolerance import needed_tolerance
from stitchcuda.verify.inputs import reference_requests as requests
from stitchcuda.verify.inputs import timed_contents
from stitchcuda.verify.inputs.reference_requests import ComparedAnswer, InputSet, Names, TensorFacts
from stitchcuda.verify.inputs.value_domain import find_value_range
from stitchcuda.verify.inputs.variants import GIVEN
from stitchcuda.verify.integrity.byte_traffic import extent_bytes
from stitchcuda.verify.messages import tensor_block, wire
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.request import Done
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.reference.blocks import Blocks

_PARTS_REMARK = "limited: compared a part at a time, from the host's memory, because the GPU's does not suffice"
_CPU_REMARK = "limited: compared on the CPU, because the GPU's memory does not suffice"
_HOST_REMARK = "limited: tensors were kept on the host in between, because the GPU's memory does not suffice"
MOST_RUNS = 4096                           # of elements that are not compared
_MOST_NAMED = 200                          # characters of a name that a program gave, in a sentence
_FROM_HOST = 1.5e10                        # bytes in a second, about: what is computed faster than it comes is not kept there

State = dict[str, torch.Tensor]
Tensors = list[torch.Tensor]
_Computed = TypeVar("_Computed")


@dataclass
class ReceivedAnswer:
    """What a program wrote after one call: outputs by path; inputs, and state, until they were compared. `state`: what the
    reference's calls change (None: none came), `digests` of all other state. `on_host`: outputs that forward returned there."""

    values: dict[str, torch.Tensor]
    inputs: list[torch.Tensor]
    state: list[torch.Tensor] | None
    digests: list[Any]
    on_host: frozenset[str] = frozenset()


class AnswerLost(Exception):
    """This process does not hold the answer: the one that was given it has ended."""


class Comparisons:
    """The answers of programs, in memory. `device`: "cuda" or "cpu". `use_state`: gives the reference the parameters in a
    block, and returns them by name. `compute`: returns its outputs for a set, and those in float64. `blocks`: makes new ones.
    """

    def __init__(
        self, device: str, use_state: Callable[[TensorBlock], State], compute: Callable[[InputSet], tuple[State, State]],
        blocks: Blocks,
    ) -> None:  # fmt: skip
        self._device = device
        self._use_state = use_state
        self._compute_set = compute
        self._blocks = blocks
        self._answers: dict[str, ReceivedAnswer] = {}
        self._digests: tuple[str, dict[str, str]] = "", {}  # of the parameters in the block of this key, by name

    def keep(
        self, structure: Any, inputs: list[torch.Tensor], expected: State, exact: State, *, variant: str = GIVEN, seed: int = 0,
        draw_seed: int | None = None, generators: str = "", undecided: State | None = None, noisy: State | None = None,
        seconds: float | None = None,
    ) -> InputSet:  # fmt: skip
        """Puts a new set into blocks, and measures the reference's own errors. `undecided`: masks of elements that rounding
        decides, in which programs are not compared; by default few integers that float64 has otherwise. `noisy`: outputs whose
        errors are taken for the reference's own. `seconds`: how long the outputs took to compute; None if they do not follow
        from the inputs and the parameters alone."""
        if undecided is None:
            undecided = find_differing(expected, exact)
        runs = {name: _runs(mask) for name, mask in undecided.items()}
        owns, truths = list(expected.values()), list(exact.values())
        self._blocks.needs(*(sum(tensor.nbytes for tensor in tensors) for tensors in (inputs, owns)))
        size = sum(tensor.nbytes for tensor in (*owns, *truths))
        recomputed = seconds is not None and seconds < size / _FROM_HOST and not self._blocks.keeps_on_gpu(size)
        put = tensor_block.describe if recomputed else self._blocks.pack
        blocks = [self._blocks.pack(inputs), put(owns), put(truths)]
        measured = noisy or expected
        measures = self._where_there_is_room(
            lambda place, device: tuple(
                bound.measure_error(
                    with_decided(measured[name].to(place), true.to(place), runs.get(name, ())), true.to(place), device=device
                )
                for name, true in zip(expected, truths, strict=True)
            )
        )[0]
        return InputSet(
            inputs=blocks[0], structure=structure, names=tuple(expected), expected=blocks[1], exact=blocks[2],
            measures=measures, input_facts=tuple(map(_facts, inputs)), output_facts=tuple(map(_facts, owns)),
            variant=variant, seed=seed, draw_seed=draw_seed, generators=generators,
            open=tuple((name, found) for name, found in runs.items() if found), recomputed=recomputed,
        )  # fmt: skip

    def receive(self, request: requests.Receive) -> requests.Received:
        """Copies what a program wrote to its blocks, which may be None."""
        self._drop(request.forget)
        try:
            blocks = (request.outputs, request.inputs_after, request.state_after)
            outputs, inputs, state = (None if block is None else self._copied(block) for block in blocks)
            values = wire.named_tensors(request.structure, outputs or [])
        except (WireError, OSError) as error:
            return requests.Received(unreadable=str(error))
        entries = zip(outputs or [], request.outputs.layout["tensors"] if request.outputs else (), strict=True)
        hosted = {id(tensor) for tensor, entry in entries if entry.get("host") is True}
        on_host = frozenset(name for name, value in values.items() if id(value) in hosted)
        self._answers[request.answer] = ReceivedAnswer(values, inputs or [], state, request.digests, on_host)
        return requests.Received(tuple(values))

    def forget(self, request: requests.Forget) -> Done:
        self._drop(request.answers)
        return Done()

    def _drop(self, answers: Sequence[str]) -> None:
        for name in answers:
            self._answers.pop(name, None)

    def find_changed(self, request: requests.FindChanged) -> Names:
        before, after = self._answer(request.before).values, self._answer(request.after).values
        return Names(tuple(name for name, value in before.items() if name not in after or not same_bits(value, after[name])))

    def compare(self, request: requests.CompareAnswer) -> ComparedAnswer:
        answer = self._answer(request.answer)
        found, remark = self._where_there_is_room(lambda place, device: self._compare(request, answer, place, device))
        answer.inputs, answer.state = [], None      # compared once; what the program returned may be compared again
        remark = remark or (_HOST_REMARK if self._blocks.on_host else "")
        return ComparedAnswer(found.errors, found.reasons, (*found.remarks, *filter(None, [remark])))

    def _where_there_is_room(self, compute: Callable[[str, str], _Computed]) -> tuple[_Computed, str]:
        """Returns (what `compute` returns, a remark where the GPU's memory did not suffice). It is given where tensors lie and
        where they are computed with: the GPU, then the host and the GPU, which gets a part at a time, then the CPU alone."""
        for place, device, remark in ((self._device, self._device, ""), ("cpu", self._device, _PARTS_REMARK)):
            try:
                return compute(place, device), remark
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            torch.cuda.empty_cache()       # after the error, whose traceback holds tensors
        return compute("cpu", "cpu"), _CPU_REMARK

    def _compare(self, request: requests.CompareAnswer, answer: ReceivedAnswer, place: str, device: str) -> ComparedAnswer:
        names = request.given.names
        inputs = unpack(request.given.inputs, place, shared=True)
        expected, exact = self._outputs(request.given, request.state, place)
        held = self._use_state(request.state)
        theirs = zip(names, request.given.expected.layout["tensors"], strict=True)
        on_host = frozenset(name for name, entry in theirs if entry["host"])
        updated = {name.partition(":")[2] for name in names if name.startswith("buffer:")}
        changing = [name for name in request.given_back if name in updated]
        others = [name for name in request.given_back if name not in updated]
        left = None if answer.state is None else dict(zip(changing, answer.state, strict=False))
        undecided = dict(request.given.open)
        errors: list[OutputError] = []
        reasons: list[str] = []
        remarks: list[str] = []
        outputs = [name for name in names if not name.startswith(("buffer:", "input:"))]
        if set(found := list(answer.values)) != set(outputs):
            returned, wanted = list_tensors(found), list_tensors(outputs)
            reasons.append(f"the program returns {returned} where the reference returns {wanted}")
            if found and ["output"] in (found, outputs):
                reasons[-1] += ": only one of them is in a tuple, list or dict"
        if len(answer.inputs) < len(inputs) and not request.outputs_only:
            reasons.append(f"the program's worker gave back {len(answer.inputs)} of {len(inputs)} inputs")
        for name, own, true, measure in zip(names, expected, exact, request.given.measures, strict=True):
            kind, _, key = name.partition(":")
            if kind == "buffer":
                if left is None:
                    continue
                value = left.get(key)
                if value is None and key not in held:
                    remarks.append(
                        f"limited: the program has no buffer {key}, which the reference updates and which no state_dict holds: "
                        "only what later calls return was compared"
                    )
                elif value is None:
                    reasons.append(f"the reference updates its buffer {key}, and the program has none of that name")
            elif kind == "input":
                if request.outputs_only:
                    continue
                value = answer.inputs[int(key)] if key.isdigit() and int(key) < len(answer.inputs) else None
            else:
                value = answer.values.get(name)
            if name in answer.on_host and name not in on_host:
                reasons.append(f"{name} is on the CPU where the reference's is on the GPU")
            if value is None:
                continue
            value = value.to(own.device)
            same_shape = kind == name and value.shape == own.shape
            if same_shape and not request.given.lenient and value.stride() != own.stride():
                remarks.append(f"{name} has strides {tuple(value.stride())}, the reference's has {tuple(own.stride())}")
            value, own = (with_decided(tensor, true, undecided.get(name, ())) for tensor in (value, own))
            error = bound.judge(name, value, own, true, request.bounds[name], measure, device=device)
            if kind == name and request.given.variant == GIVEN:
                error = error.model_copy(update={"tolerance": needed_tolerance(value, own, device=device)})
            errors.append(error)
        reasons += [_sentence(error) for error in errors if not error.ok]
        changed = {name.partition(":")[2] for name in names if name.startswith("input:")}
        for position, (before, after) in enumerate(zip(inputs, answer.inputs, strict=False)):
            if str(position) not in changed and not same_bits(before, after):
                reasons.append(f"the program writes into its input {position}, which the reference leaves alone")
        if left is not None and (len(answer.state or []), len(answer.digests)) != (len(changing), len(others)):
            reasons.append("the program's worker gave back another number of tensors of its state than it holds")
        for name, digest in zip(others if left is not None else (), answer.digests, strict=False):
            if digest != self._digest(request.state.key, name, held[name]):
                reasons.append(f"the program changes {name}, which the reference leaves alone")
        return ComparedAnswer(tuple(errors), tuple(reasons), tuple(remarks))

    def find_wrong(self, request: requests.FindWrong) -> Names:
        def find(place: str, device: str) -> list[str]:
            others = self._outputs(request.other, request.other_state, place)[0]
            expected, exact = self._outputs(request.given, request.state, place)
            compared = zip(request.given.names, others, expected, exact, strict=True)
            return [
                name for name, value, own, true in compared
                if not bound.judge(name, value.to(own.device), own, true, request.bounds[name], device=device).ok
            ]  # fmt: skip

        return Names(tuple(self._where_there_is_room(find)[0]))

    def find_degenerate(self, request: requests.FindDegenerate) -> requests.DegenerateOutputs:
        def find(place: str, device: str) -> tuple[list[str], dict[str, str]]:
            sets = [self._outputs(given, request.state, place) for given in request.sets]
            others = unpack(reweighed.exact, place, shared=True) if reweighed.exact else []
            return degenerate_outputs.find_degenerate(
                request.sets[0].names, sets, dict(zip(reweighed.names, others, strict=True)), request.bounds,
                reweighed.parameters, device,
            )  # fmt: skip

        reweighed = request.reweighed
        (judged, found), _ = self._where_there_is_room(find)
        return requests.DegenerateOutputs(tuple(judged), found)

    def find_unvaried(self, request: requests.FindUnvaried) -> requests.Unvaried:
        first, *others = (unpack(block, block.device, shared=True) for block in request.inputs)
        same = [position for position, tensor in enumerate(first) if tensor.numel()]
        ranges = {place: found for place, tensor in enumerate(first) if (found := find_value_range(tensor))}
        for other in others:
            same = [place for place in same if place < len(other) and same_bits(first[place], other[place])]
            for place, (low, high, special) in list(ranges.items()):
                if place < len(other) and (found := find_value_range(other[place])):
                    ranges[place] = min(low, found[0]), max(high, found[1]), special or found[2]
        return requests.Unvaried(tuple(same), tuple((place, *found) for place, found in ranges.items()))

    def find_movable(self, request: requests.FindMovable) -> requests.Movable:
        sets = [unpack(block, self._device) for block in request.inputs]
        found = [timed_contents.find_movable(tensors) for tensors in sets]
        moving = [pair for pair in found[0] if all(pair in other for other in found)]
        floats = [pair for pair in moving if sets[0][pair[0]].dtype in timed_contents.FLOATS]
        ordered = [place for place, tensor in enumerate(sets[0]) if timed_contents.order_matters(tensor)]
        return requests.Movable(moving, floats, ordered)

    def find_changed_state(self, request: requests.FindChangedState) -> Names:
        state = self._use_state(request.state)
        others = dict(zip(state, unpack(request.other, request.other.device, shared=True), strict=True))
        changed = (name for name, value in state.items() if not torch.equal(value, others[name].to(value.device)))
        return Names(tuple(changed))

    def mix_state(self, request: requests.MixState) -> requests.Renewed:
        state = self._use_state(request.state)
        others = dict(zip(state, unpack(request.other, request.other.device, shared=True), strict=True))
        mixed = [others[name].to(value.device) if name in request.names else value for name, value in state.items()]
        return requests.Renewed(self._blocks.pack(mixed))

    def _digest(self, key: str, name: str, tensor: torch.Tensor) -> str:
        """The digest of a tensor of the state in the block `key`, as a program's worker computes it."""
        if self._digests[0] != key:
            self._digests = key, {}
        known = self._digests[1]
        if name not in known:
            known[name] = tensor_block.digest(tensor, key)
        return known[name]

    def _answer(self, name: str) -> ReceivedAnswer:
        if name not in self._answers:
            raise AnswerLost("the reference's process ended while it held a program's answer")
        return self._answers[name]

    def _outputs(self, given: InputSet, state: TensorBlock, place: str) -> tuple[Tensors, Tensors]:
        """Returns the reference's outputs for a set with the parameters in `state`, and those in float64."""
        if not given.recomputed:
            expected, exact = (unpack(block, place, shared=True) for block in (given.expected, given.exact))
            return expected, exact
        self._use_state(state)
        made = self._compute_set(given)
        if tuple(made[0]) != given.names:
            raise AnswerLost("the reference returned other outputs when it computed them anew")
        expected, exact = ([outputs[name].to(place) for name in given.names] for outputs in made)
        return expected, exact

    def _copied(self, block: TensorBlock) -> list[torch.Tensor]:
        try:
            return unpack(block, self._blocks.place_for_call(block.size), answer=True, digest_on=self._device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()
            return unpack(block, "cpu", answer=True, digest_on=self._device)


def find_differing(expected: State, exact: State) -> State:
    """Masks of integers that float64 has otherwise, with the rows that they are in, for outputs of which these are few."""
    masks = {name: bound.find_off(exact[name], own, own) for name, own in expected.items() if not bound.eps(own.dtype)}
    return {name: mask for name, mask in masks.items() if 0 < 8 * int(mask.sum()) <= mask.numel()}


def _runs(mask: torch.Tensor) -> tuple[tuple[int, int], ...]:
    """From where to where it is true, in row-major order; nothing where that is so in too many places."""
    changes = torch.nn.functional.pad(mask.flatten().int(), (1, 1)).diff().nonzero().flatten().tolist()
    return tuple(zip(changes[::2], changes[1::2], strict=True)) if len(changes) <= 2 * MOST_RUNS else ()


def with_decided(value: torch.Tensor, other: torch.Tensor, runs: Sequence[tuple[int, int]]) -> torch.Tensor:
    """The value with the elements of `other` there; as it is where the two have not the same form."""
    if not runs or value.shape != other.shape:
        return value
    made, there = value.reshape(-1).clone(), other.reshape(-1)
    for begin, end in runs:
        made[begin:end] = there[begin:end].to(made.dtype)
    return made.view(value.shape)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one shape and dtype hold the same bytes in the same order of elements, whatever their strides."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.numel() == 0:
        return True
    left, right = (left.cpu(), right.cpu()) if left.device != right.device else (left, right)
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right)))


def list_tensors(names: Sequence[str]) -> str:
    """Returns "2 tensors (output.0, output.1)", or "nothing"."""
    first = ", ".join(name[:_MOST_NAMED] for name in names[:4])
    return f"{counted(len(names), 'tensor')} ({first}{', …' if len(names) > 4 else ''})" if names else "nothing"


def _sentence(error: OutputError) -> str:
    if error.max_bound == 0.0:
        return f"{error.name} {error.note}"
    return (
        f"{error.name} is wrong: largest error {error.max_error:.3g} where {error.max_bound:.3g} is allowed, "
        f"norm {error.norm_error:.3g} where {error.norm_bound:.3g}; {error.note}"
    )


def _facts(tensor: torch.Tensor) -> TensorFacts:
    return TensorFacts(shape=tuple(tensor.shape), bytes=extent_bytes(tensor), floating=bound.eps(tensor.dtype) > 0)
