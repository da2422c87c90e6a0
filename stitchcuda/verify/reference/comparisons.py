"""Compares what programs answered with what the reference computed, in the reference worker, on the device it computes on.

A method answers the judge's message of its name: fields in, answer's fields out; what travels to the judge are figures. What a
program wrote is copied into memory of this process once ("receive"), and only then looked at: a program that writes to its
blocks afterwards changes nothing. What it says of them is never trusted (`verify/messages/tensor_block.py` checks it). Where
the GPU's memory does not suffice, the CPU compares, and a remark says so.
Where to look next: `verify/program/trial.py` and `verify/inputs/secret_inputs.py` (who ask), `verify/compare/bound.py` (the
rule), `verify/reference/reference_worker.py` (the process).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stitchcuda.counts import counted
from stitchcuda.state import OutputError
from stitchcuda.verify.compare import bound, degenerate_outputs
from stitchcuda.verify.compare.bound import Measure, bounds_from_json
from stitchcuda.verify.compare.expected_outputs import ExpectedOutput, ExpectedOutputs
from stitchcuda.verify.compare.reference_error import Float64Output
from stitchcuda.verify.inputs import timed_contents
from stitchcuda.verify.integrity.byte_traffic import extent_bytes
from stitchcuda.verify.messages import tensor_block, wire
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.tensor_block import TensorBlock, unpack
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.reference.blocks import Blocks

_CPU_REMARK = "limited: compared on the CPU, because the GPU's memory does not suffice"
_HOST_REMARK = "limited: tensors were kept on the host in between, because the GPU's memory does not suffice"
_MOST_NAMED = 200                          # characters of a name that a program gave, in a sentence

State = dict[str, torch.Tensor]


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
    """The expected outputs of input sets and the answers of programs, in memory. `device`: "cuda" or "cpu". `use_state`: gives
    the reference the parameters in a block, and returns them by name. `blocks`: makes new ones."""

    def __init__(self, device: str, use_state: Callable[[TensorBlock], State], blocks: Blocks) -> None:
        self._device = device
        self._use_state = use_state
        self._blocks = blocks
        self._expected = ExpectedOutputs(device)
        self._answers: dict[str, ReceivedAnswer] = {}
        self._digests: tuple[str, dict[str, str]] = "", {}  # of the parameters in the block of this key, by name

    def keep(self, inputs: list[torch.Tensor], expected: State, exact: State) -> dict[str, Any]:
        """Puts a new set into blocks, and keeps its tensors in memory too. Returns these blocks and the facts that the judge
        needs: what `answered_set` in `verify/inputs/secret_inputs.py` reads."""
        found = ExpectedOutput(inputs, list(expected.values()), [Float64Output(true) for true in exact.values()])
        blocks = {
            "inputs": self._blocks.pack(inputs),
            "expected": self._blocks.pack(list(expected.values())),
            "exact": self._blocks.pack(list(exact.values())),
        }
        try:
            measures = found.measure_errors()
            self._expected.put(blocks["expected"].key, found)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            del found
            torch.cuda.empty_cache()
            measures = ExpectedOutput(
                [], [own.cpu() for own in expected.values()], [Float64Output(true.cpu()) for true in exact.values()]
            ).measure_errors()
        return {
            **blocks,
            "names": list(expected),
            "measures": [measure.model_dump(mode="json") for measure in measures],
            "input_facts": [_facts(tensor) for tensor in inputs],
            "output_facts": [_facts(tensor) for tensor in expected.values()],
        }

    def receive(self, message: dict[str, Any]) -> dict[str, Any]:
        """Copies what a program wrote to the blocks `outputs`, `inputs_after` and `state_after` (may be None), under the name
        `answer`. Answers with the outputs' paths, or with `unreadable`: why not."""
        self.forget(message)
        try:
            blocks = (message["outputs"], message["inputs_after"], message["state_after"])
            outputs, inputs, state = (None if block is None else self._copied(block) for block in blocks)
            values = wire.named_tensors(message["structure"], outputs or [])
        except (WireError, OSError) as error:
            return {"unreadable": str(error)}
        digests = message["digests"] if isinstance(message["digests"], list) else []
        entries = zip(outputs or [], message["outputs"].layout["tensors"] if outputs else (), strict=True)
        hosted = {id(tensor) for tensor, entry in entries if entry.get("host") is True}
        on_host = frozenset(name for name, value in values.items() if id(value) in hosted)
        self._answers[message["answer"]] = ReceivedAnswer(values, inputs or [], state, digests, on_host)
        return {"names": list(values)}

    def forget(self, message: dict[str, Any]) -> dict[str, Any]:
        """Drops the answers named in `forget`."""
        for name in message["forget"]:
            self._answers.pop(name, None)
        return {}

    def find_changed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the paths of the outputs of answer `before` that `after` lacks, or has with other bits."""
        before, after = (self._answer(message[which]).values for which in ("before", "after"))
        changed = [name for name, value in before.items() if name not in after or not same_bits(value, after[name])]
        return {"names": changed}

    def compare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Compares an answer with the reference's outputs for the set `set`, within `bounds`. Answers with `errors` (of every
        output and updated buffer), `reasons` (sentences on everything that is wrong) and `remarks`."""
        answer = self._answer(message["answer"])
        try:
            found = self._compare(message, answer, self._set(message["set"]))
            return found | {"remarks": [*found["remarks"], *([_HOST_REMARK] if self._blocks.on_host else [])]}
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()
            answer = ReceivedAnswer(
                {name: value.cpu() for name, value in answer.values.items()},
                [tensor.cpu() for tensor in answer.inputs],
                None if answer.state is None else [tensor.cpu() for tensor in answer.state],
                answer.digests,
            )
            known = self._read_set(message["set"], "cpu")
            found = self._compare(message, answer, known)
            return found | {"remarks": [*found["remarks"], _CPU_REMARK]}

    def _compare(self, message: dict[str, Any], answer: ReceivedAnswer, known: ExpectedOutput) -> dict[str, Any]:
        names, bounds = message["set"]["names"], bounds_from_json(message["bounds"])
        measures = [Measure.model_validate(measure) for measure in message["measures"]]
        held = self._use_state(message["state"])
        updated = {name.partition(":")[2] for name in names if name.startswith("buffer:")}
        changing = [name for name in message["given_back"] if name in updated]
        others = [name for name in message["given_back"] if name not in updated]
        left = None if answer.state is None else dict(zip(changing, answer.state, strict=False))
        errors: list[OutputError] = []
        reasons: list[str] = []
        remarks: list[str] = []
        outputs = [name for name in names if not name.startswith(("buffer:", "input:"))]
        if set(found := list(answer.values)) != set(outputs):
            returned, wanted = list_tensors(found), list_tensors(outputs)
            reasons.append(f"the program returns {returned} where the reference returns {wanted}")
            if found and ["output"] in (found, outputs):
                reasons[-1] += ": only one of them is in a tuple, list or dict"
        if len(answer.inputs) < len(known.inputs) and not message["outputs_only"]:
            reasons.append(f"the program's worker gave back {len(answer.inputs)} of {len(known.inputs)} inputs")
        for name, own, true, measure in zip(names, known.expected, known.truths, measures, strict=True):
            kind, _, key = name.partition(":")
            if kind == "buffer":
                if left is None:
                    continue
                value = left.get(key)
                if key not in held:
                    remarks.append(f"buffer {key} is in no state_dict and was not compared")
                elif value is None:
                    reasons.append(f"the reference updates its buffer {key}, and the program has none of that name")
            elif kind == "input":
                if message["outputs_only"]:
                    continue
                value = answer.inputs[int(key)] if key.isdigit() and int(key) < len(answer.inputs) else None
            else:
                value = answer.values.get(name)
            if name in answer.on_host and own.device.type != "cpu":
                reasons.append(f"{name} is on the CPU where the reference's is on the GPU")
            if value is not None:
                value = value.to(own.device)  # its own are on the CPU where the GPU's memory did not suffice
            same_shape = value is not None and kind == name and value.shape == own.shape
            if value is not None and same_shape and not message["lenient"] and value.stride() != own.stride():
                remarks.append(f"{name} has strides {tuple(value.stride())}, the reference's has {tuple(own.stride())}")
            if value is not None:
                errors.append(bound.judge(name, value, own, true, bounds[name], measure))
        reasons += [_sentence(error) for error in errors if not error.ok]
        changed = {name.partition(":")[2] for name in names if name.startswith("input:")}
        for position, (before, after) in enumerate(zip(known.inputs, answer.inputs, strict=False)):
            if str(position) not in changed and not same_bits(before, after):
                reasons.append(f"the program writes into its input {position}, which the reference leaves alone")
        if left is not None and (len(answer.state or []), len(answer.digests)) != (len(changing), len(others)):
            reasons.append("the program's worker gave back another number of tensors of its state than it holds")
        for name, digest in zip(others if left is not None else (), answer.digests, strict=False):
            if digest != self._digest(message["state"].key, name, held[name]):
                reasons.append(f"the program changes {name}, which the reference leaves alone")
        answer.inputs, answer.state = [], None      # compared once; what the program returned may be compared again
        return {"errors": [error.model_dump(mode="json") for error in errors], "reasons": reasons, "remarks": remarks}

    def compare_expected(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the names of the reference's own outputs in the block `given` that are wrong for the set `set`."""
        known, bounds = self._set(message["set"]), bounds_from_json(message["bounds"])
        given = unpack(message["given"], self._device)
        values = [value.to(own.device) for value, own in zip(given, known.expected, strict=True)]
        each = zip(message["set"]["names"], values, known.expected, known.truths, strict=True)
        return {"wrong": [name for name, value, own, true in each if not bound.judge(name, value, own, true, bounds[name]).ok]}

    def find_degenerate(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the outputs that have elements (`names`) and why single ones say nothing (`found`), from the reference's
        outputs for the sets `sets` and those with other parameters, `reweighed_names` in the block `reweighed`."""
        sets = [self._set(given) for given in message["sets"]]
        others = unpack(message["reweighed"], self._device) if message["reweighed_names"] else []
        on_cpu = any(true.exact.device.type == "cpu" for known in sets for true in known.truths)
        if on_cpu:                         # some of it, or all
            sets = [self._read_set(given, "cpu") for given in message["sets"]]
            others = [tensor.cpu() for tensor in others]
        names, found = degenerate_outputs.find_degenerate(
            message["sets"][0]["names"],
            [(known.expected, [true.exact for true in known.truths]) for known in sets],
            dict(zip(message["reweighed_names"], others, strict=True)),
            bounds_from_json(message["bounds"]),
            message["parameters"],
        )
        return {"names": names, "found": found}

    def find_unvaried(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the positions of the input tensors that are the same in all of the blocks `sets`: a program could have
        them written into it."""
        first, *others = (unpack(block, self._device) for block in message["sets"])
        same = [position for position, tensor in enumerate(first) if tensor.numel()]
        for other in others:
            same = [place for place in same if place < len(other) and torch.equal(first[place], other[place])]
        return {"positions": same}

    def find_movable(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the tensors that timed calls may change in all of the inputs `sets` (`moving`, and of them those of
        floats in `floats`), and with the positions of those whose order matters (`ordered`)."""
        sets = [unpack(block, self._device) for block in message["sets"]]
        found = [timed_contents.find_movable(tensors) for tensors in sets]
        moving = [pair for pair in found[0] if all(pair in other for other in found)]
        return {
            "moving": moving,
            "floats": [pair for pair in moving if sets[0][pair[0]].dtype in timed_contents.FLOATS],
            "ordered": [place for place, tensor in enumerate(sets[0]) if timed_contents.order_matters(tensor)],
        }

    def find_changed_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with the names of the state whose values in the blocks `state` and `other` differ."""
        state = self._use_state(message["state"])
        others = dict(zip(state, unpack(message["other"], self._device), strict=True))
        return {"names": [name for name, value in state.items() if not torch.equal(value, others[name])]}

    def mix_state(self, message: dict[str, Any]) -> dict[str, Any]:
        """Answers with a new block `state`: that in `state`, with the values in `other` for the names in `names`."""
        state = self._use_state(message["state"])
        others = dict(zip(state, unpack(message["other"], self._device), strict=True))
        mixed = [others[name] if name in message["names"] else value for name, value in state.items()]
        return {"state": self._blocks.pack(mixed)}

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

    def _set(self, message: dict[str, Any]) -> ExpectedOutput:
        return self._expected.get(message["expected"].key, lambda: self._read_set(message, self._device))

    def _read_set(self, message: dict[str, Any], device: str) -> ExpectedOutput:
        inputs, expected, exact = (unpack(message[what], device) for what in ("inputs", "expected", "exact"))
        return ExpectedOutput(inputs, expected, [Float64Output(true) for true in exact])

    def _copied(self, block: TensorBlock) -> list[torch.Tensor]:
        try:
            return unpack(block, self._device, answer=True)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            torch.cuda.empty_cache()
            return unpack(block, "cpu", answer=True)


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


def _facts(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "bytes": extent_bytes(tensor), "floating": tensor.is_floating_point()}
