"""Searches inputs for which a comparison of the reference has a result that it never had, such as a sum that is exactly zero.

Newton's method: of one element of the compared tensors it takes the gradient by the inputs, and moves one of those that it
depends on. Elements that it depends on get few bits, so that their sums are exact in any order, and honest programs agree. What
is found is one more input set, where the reference stands it.
Where to look next: `verify/reference/conditions.py` (which comparisons), `verify/reference/expected_outputs.py` (who asks).
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Sequence
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from stitchcuda.verify.inputs.input_ranges import list_tensors, replace_numbered
from stitchcuda.verify.inputs.value_domain import find_domain
from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.reference.float64_truth import private_state

_MOST = 4                                  # comparisons that are tried,
_TRIES, _FOUND = 16, 4                     # each for so many elements, until so many are found,
_SECONDS = 1.5                             # for as long
_STEPS = 4
_BITS = 5                                  # below the input's size, of the elements that are not moved
_COMPARING = frozenset(("eq", "ge", "gt", "le", "lt", "ne"))

Wanted = tuple[CodeType, int, bool]
"""A comparison's function and instruction, and the result that is wanted."""


def meet(
    module: nn.Module, arguments: Any, wanted: Sequence[Wanted], free: Collection[int], generator: torch.Generator
) -> Any | None:
    """Returns the arguments (args, kwargs) with other values in a few elements of its floats; None if none is found. `free`:
    the inputs that may leave the range of get_inputs(), by number."""
    found, until = False, time.monotonic() + _SECONDS
    for comparison in wanted[:_MOST]:
        search = _Search(module, arguments, comparison, free, generator)
        try:
            changed = search.run(until)
        except Exception as error:         # as where the reference writes to its inputs, which gradients do not allow
            if is_out_of_memory(error):
                raise
            continue
        if changed is not None:
            found, arguments = True, changed
    return arguments if found else None


class _Search:
    def __init__(
        self, module: nn.Module, arguments: Any, comparison: Wanted, free: Collection[int], generator: torch.Generator
    ) -> None:
        self._module, self._arguments, self._comparison = module, arguments, comparison
        self._generator = generator
        tensors = enumerate(list_tensors(arguments))
        domains = {number: (tensor, find_domain(tensor)) for number, tensor in tensors if tensor.dtype is torch.float32}
        self._domains = {
            number: "free" if number in free else domain for number, (_, domain) in domains.items()
            if domain not in ("fixed", "permuted") or number in free
        }  # fmt: skip
        self._leaves = {number: domains[number][0].detach().clone() for number in self._domains}

    def run(self, until: float) -> Any | None:
        found, seen = 0, self._compare()
        for _ in range(_TRIES):
            if not self._leaves or seen is None or not seen.requires_grad or found == _FOUND or time.monotonic() > until:
                break
            before = {number: leaf.detach().clone() for number, leaf in self._leaves.items()}
            element = self._pick(seen.numel())
            if self._move(seen, element):
                found += 1
            else:
                self._leaves = before
            seen = self._compare()
        if not found:
            return None
        return replace_numbered(self._arguments, lambda number, tensor: self._leaves.get(number, tensor).detach())

    def _move(self, seen: Tensor, element: int) -> bool:
        """Whether the comparison's element has the wanted result after steps of one of the elements of an input."""
        gradients = self._gradients(seen, element)
        places = [(number, place) for number, grad in gradients.items() for place in grad.flatten().nonzero()[:, 0].tolist()]
        if not places:
            return False
        moved, place = places[self._pick(len(places))]
        for number, grad in gradients.items():
            leaf = self._leaves[number].detach()
            few = _rounded(leaf, _BITS)
            self._leaves[number] = torch.where(grad != 0, few, leaf)
        for _ in range(_STEPS):
            now = self._compare()
            if now is None or now.numel() <= element:
                return False
            leaf = self._leaves[moved].detach().clone()
            slope = float(self._gradients(now, element)[moved].flatten()[place])
            step = -float(now[element].detach()) / slope if slope else math.nan
            if not math.isfinite(step):
                return False
            near = leaf.view(-1)[place] + step
            unit = 2.0 ** (_exponent(leaf) - 2 * _BITS)
            # On the threshold and next to it on either side: which of these the comparison wants is tried.
            for shift in (0.0, math.copysign(unit, step), -math.copysign(unit, step)):
                value = float((near / unit).round() * unit) + shift
                if not _allowed(value, self._domains[moved]):
                    continue
                leaf.view(-1)[place] = value
                self._leaves[moved] = leaf.clone()
                if self._has_result(element):
                    return True
            leaf.view(-1)[place] = near
            self._leaves[moved] = leaf
        return False

    def _pick(self, count: int) -> int:
        return int(torch.randint(count, (), generator=self._generator, device=self._generator.device))

    def _gradients(self, seen: Tensor, element: int) -> dict[int, Tensor]:
        grads = torch.autograd.grad(seen[element], list(self._leaves.values()), allow_unused=True, retain_graph=True)
        return {
            number: torch.zeros_like(leaf) if grad is None else grad
            for (number, leaf), grad in zip(self._leaves.items(), grads, strict=True)
        }

    def _compare(self) -> Tensor | None:
        """The difference of what is compared, flat, with its graph."""
        return self._call().difference

    def _has_result(self, element: int) -> bool:
        result = self._call().result
        return result is not None and bool(result.flatten()[element]) is self._comparison[2]

    def _call(self) -> _Compared:
        self._leaves = {number: leaf.detach().requires_grad_() for number, leaf in self._leaves.items()}
        args, kwargs = replace_numbered(self._arguments, lambda number, tensor: self._leaves.get(number, tensor))
        code, at, _ = self._comparison
        compared = _Compared(code, at)
        with private_state(self._module), torch.enable_grad(), compared:
            self._module(*args, **kwargs)
        return compared


class _Compared(TorchFunctionMode):
    """Takes what the comparison at this place compares in the first call of it."""

    def __init__(self, code: CodeType, at: int) -> None:
        super().__init__()
        self._code, self._at = code, at
        self.difference: Tensor | None = None
        self.result: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.result is None and getattr(func, "__name__", "").strip("_") in _COMPARING and self._is_there():
            left, right = args[:2]
            self.result, self.difference = result, (left - right).expand(result.shape).flatten()
        return result

    def _is_there(self) -> bool:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        return frame is not None and frame.f_lasti == self._at


def _exponent(tensor: Tensor) -> int:
    size = float(tensor.detach().double().square().mean().sqrt())
    return math.ceil(math.log2(size)) if 0 < size < math.inf else 0


def _rounded(tensor: Tensor, bits: int) -> Tensor:
    """The tensor with so many bits below its size."""
    unit = 2.0 ** (_exponent(tensor) - bits)
    return (tensor / unit).round() * unit


def _allowed(value: float, domain: str) -> bool:
    return domain == "free" or (value >= 0 and (domain != "unit" or value <= 1))
