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

from stitchcuda.verify.messages.out_of_memory import is_out_of_memory
from stitchcuda.verify.messages.shared_tensors import as_real, extent, flat_parts

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
_DITHER = 0.25                             # of noise before rounding, as where programs compute 16 bits in float32
_PART = 2**23                              # elements that get noise at a time
_UNSURE = 8                                # last bits of a float64, which follow from the order of sums
_SALT = 0x5851F42D4C957F2D
_WIDER = {
    torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128
}
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


class RoundingNoise(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call of the reference. `generator`: of the noise, on the reference's device. `centres`: whether an operator ran
    that centres values inside. `spare_exact`: what an operator does not round on these inputs gets no noise: few bits add up
    to the same in any order. `apart`: values that only rounding makes equal get noise of their own. `fine`: results of
    pointwise operators get noise before they are rounded, so that most have the bits of correct rounding. `number`: of the
    noise; that of an odd one is the opposite of that before, so that one of the two parts what is equal."""

    def __init__(
        self, generator: torch.Generator, *, spare_exact: bool = False, apart: bool = False, fine: bool = False,
        number: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()                 # type: ignore[no-untyped-call]
        self._generator, self._spare_exact, self._apart, self._fine = generator, spare_exact, apart, fine
        self._salt, self._sign = number // 2 * _SALT, -1 if number % 2 else 1
        self.centres = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        self.centres |= name.startswith(("var", "std")) or ("_norm" in name and not name.startswith(("linalg", "_fused_rms")))
        held = {_address(leaf) for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        rounds, in_place = name.rstrip("_") not in _EXACT, name.endswith("_")
        narrow = any(_takes_noise(leaf) and leaf.itemsize == 2 for leaf in pytree.tree_leaves((args, kwargs)))
        centring = ("norm" in name or name.startswith(("var", "std"))) and args and _takes_noise(args[0]) and not in_place
        noisy = (self._with_noise_of_its_own(args[0]), *args[1:]) if centring else args
        fine = self._fine and torch.Tag.pointwise in func.tags  # a sum differs by more than its last rounding
        wanted = rounds and (narrow or self._apart or fine or (self._spare_exact and not in_place))
        right = _in_float64(func, noisy, kwargs) if wanted else []
        result = func(*(args if narrow else noisy), **(kwargs or {}))
        for number, made in enumerate(pytree.tree_leaves(result) if rounds else ()):
            if _takes_noise(made) and (in_place or _address(made) not in held):
                self._change(as_real(made), as_real(right[number]) if right else None, fine=fine)
        return result

    def _change(self, made: Tensor, true: Tensor | None, *, fine: bool) -> None:
        """Adds noise to what an operator made; before it is rounded, if `fine`. `true`: what it makes in float64."""
        before = made.clone() if true is not None and self._spare_exact else None
        unit = torch.finfo(made.dtype).eps
        if true is not None and (made.itemsize == 2 or (fine and made.itemsize < true.itemsize)):
            unsure = _UNSURE if self._apart and fine else 0
            made.copy_(true * (1 + _DITHER * unit * self._noise_by_value(true, unsure)))
        elif true is not None and self._apart and made.itemsize < true.itemsize:
            made.mul_((1 + _ULPS * unit * self._noise_by_value(true, _UNSURE)).to(made.dtype))
        else:
            for part in _parts(made):
                part.mul_((1 + _ULPS * unit * self._noise_by_value(part)).to(part.dtype))
        if before is not None and true is not None:
            made.copy_(torch.where(before.double() == true, before, made))

    def _with_noise_of_its_own(self, tensor: Tensor) -> Tensor:
        """A copy with noise in the last bits of float32 at least: operators on 16 bits compute in float32."""
        noisy = tensor.double() if tensor.itemsize == 2 else tensor.resolve_conj().clone()
        size = torch.finfo(torch.float32 if tensor.itemsize == 2 else tensor.dtype).eps * (2 * _DITHER if self._fine else _ULPS)
        for part in _parts(as_real(noisy)):
            noise = torch.rand(part.shape, generator=self._generator, device=self._generator.device).to(part.device)
            part.copy_(part.double() * (1 + size * (2 * noise - 1)))
        return noisy

    def _noise_by_value(self, value: Tensor, unsure: int = 0) -> Tensor:
        """A number for each element, from 0.5 to 1 or -1 to -0.5, which follows from its bits, all but `unsure` last ones."""
        bits = value.detach().view(_BITS[value.itemsize]).long()
        bits = bits + 2 ** (unsure - 1) >> unsure if unsure else bits
        mixed = (bits ^ self._salt) * 0x9E3779B97F4A7C1 >> 24
        size = self._sign * (0.5 + (mixed & 0xFFFF).double() / 2**17)
        return torch.where((mixed & 2**16) > 0, size, -size)


def _in_float64(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """What the operator computes of these arguments in float64; nothing where it draws, or where it has no float64."""
    if torch.Tag.nondeterministic_seeded in func.tags:
        return []

    def widen(value: Any) -> Any:
        if isinstance(value, Tensor):
            return value.to(_WIDER.get(value.dtype, value.dtype), copy=func._schema.is_mutable)
        return _WIDER.get(value, value) if isinstance(value, torch.dtype) else value

    wide, named = pytree.tree_map(widen, (args, kwargs or {}))
    try:
        return pytree.tree_leaves(func(*wide, **named))
    except RuntimeError as error:          # as some kinds of attention on a GPU
        if is_out_of_memory(error):
            raise
        return []


def _takes_noise(value: Any) -> bool:
    strided = isinstance(value, Tensor) and value.layout is torch.strided
    real = strided and (value.is_floating_point() or value.is_complex())
    return real and torch.finfo(value.dtype).bits // 8 in _BITS and value.numel() > 0


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Yields views of all of a tensor's elements in the order of memory, a part at a time: noise takes several times the memory
    of what it is added to. A tensor with gaps is one part."""
    dense = extent(tensor) == tensor.numel()
    return flat_parts(tensor.as_strided((tensor.numel(),), (1,)), _PART) if dense else iter((tensor,))


def _address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else 0
