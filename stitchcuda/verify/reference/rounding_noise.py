"""Perturbs the result of each operator that rounds, to find out whether rounding decides what a reference returns.

An honest program adds in another order. Where its sums differ in their last bits, the outputs must not differ by more than
programs may: x minus the mean of a constant row, divided by nearly nothing, is noise. A mode of torch's dispatcher. Equal
values get equal noise, so ties stay ties, and zeros stay zero. Operators that centre values inside (norms, variances) get
inputs with noise of their own. It compares nothing. Where to look next: `verify/reference/range_search.py` (who uses it).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.verify.messages.shared_tensors import extent, flat_parts

_EXACT = frozenset((
    "_to_copy", "abs", "amax", "amin", "arange", "argmax", "argmin", "as_strided", "cat", "ceil", "clamp", "clamp_max",
    "clamp_min", "clone", "constant_pad_nd", "copy", "detach", "embedding", "empty", "empty_like", "fill", "flip", "floor",
    "full", "full_like", "gather", "hardshrink", "hardtanh", "index", "index_copy", "index_fill", "index_put",
    "index_select", "lift_fresh", "masked_fill", "masked_scatter", "masked_select", "max", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "maximum", "min", "minimum", "nan_to_num", "neg", "new_empty", "new_full", "new_ones",
    "new_zeros", "ones", "ones_like", "relu", "repeat", "resize", "roll", "round", "scalar_tensor", "scatter", "set", "sign",
    "sort", "squeeze", "stack", "t", "threshold", "topk", "transpose", "tril", "triu", "trunc", "unsqueeze", "where", "zero",
    "zeros", "zeros_like",
))  # fmt: skip
_ULPS = 2.0
_PART = 2**23                              # elements that get noise at a time
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class RoundingNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call of the reference. `generator`: of the noise, on the reference's device. `centres`: whether an operator ran
    that centres values inside. `spare_exact`: what an operator does not round on these inputs gets no noise: few bits add up
    to the same in any order."""

    def __init__(self, generator: torch.Generator, *, spare_exact: bool = False) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self._generator, self._spare_exact = generator, spare_exact
        self.centres = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        self.centres |= name.startswith(("var", "std")) or ("_norm" in name and not name.startswith(("linalg", "_fused_rms")))
        if ("norm" in name or name.startswith(("var", "std"))) and args and _takes_noise(args[0]) and not name.endswith("_"):
            args = (self._with_noise_of_its_own(args[0]), *args[1:])
        held = {_address(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        result = func(*args, **(kwargs or {}))
        if name.rstrip("_") not in _EXACT:
            right = _in_float64(func, args, kwargs) if self._spare_exact and not name.endswith("_") else None
            for number, made in enumerate(pytree.tree_leaves(result)):
                if _takes_noise(made) and (name.endswith("_") or _address(made) not in held):
                    before = made.clone() if right else made
                    for part in _parts(made):
                        part.mul_(_noise_by_value(part))
                    if right:
                        made.copy_(torch.where(before.double() == right[number], before, made))
        return result

    def _with_noise_of_its_own(self, tensor: Tensor) -> Tensor:
        noisy = tensor.clone()
        for part in _parts(noisy):
            noise = torch.rand(part.shape, generator=self._generator, device=self._generator.device).to(part.device)
            part.copy_(part.double() * (1 + _ULPS * torch.finfo(part.dtype).eps * (2 * noise - 1)))
        return noisy


def _in_float64(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """What the operator computes of these arguments in float64."""
    def widen(value: Any) -> Any:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    wide, named = pytree.tree_map(widen, (args, kwargs or {}))
    return pytree.tree_leaves(func(*wide, **named))


def _takes_noise(value: Any) -> bool:
    strided = isinstance(value, Tensor) and value.layout is torch.strided
    return strided and value.is_floating_point() and value.itemsize in _BITS and value.numel() > 0


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yields views of all of a tensor's elements in the order of memory, a part at a time: noise takes several times the memory
    of what it is added to. A tensor with gaps is one part."""
    dense = extent(tensor) == tensor.numel()
    return flat_parts(tensor.as_strided((tensor.numel(),), (1,)), _PART) if dense else iter((tensor,))


def _noise_by_value(tensor: Tensor) -> Tensor:
    """A factor for each element, which differs from 1 by half of `_ULPS` units in the last place to all of them, and follows
    from the element's bits."""
    mixed = tensor.detach().view(_BITS[tensor.itemsize]).long() * 0x9E3779B97F4A7C1 >> 24
    size = 0.5 + (mixed & 0xFFFF).double() / 2**17
    return (1 + _ULPS * torch.finfo(tensor.dtype).eps * torch.where((mixed & 2**16) > 0, size, -size)).to(tensor.dtype)


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
