"""Measures which significand each product and convolution of a reference really carries, from its own error.

A flag says what may be used (TF32 for convolutions, say), not what is: cuDNN has no TF32 kernel for every shape. So a part of
each result is computed again in float64 from the same operands, in one more call of the reference. Operands rounded to 11 bits
(TF32, float16) or 8 (bfloat16) leave an error that sums of float32 products do not have, unless all terms have one sign: then
these errors cancel, and the result carries more. It decides nothing.
Where to look next: `verify/reference/reference_worker.py` (who calls the reference), `verify/api.py` (where it is told).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_ROWS, _COLUMNS = 64, 256                  # of a product that are computed again
_LEAST = 2.0**-10.2                        # relative error in norm above which a result carries 8 bits,
_LESS = 2.0**-16                           # and 11 above this one; operands of 11 bits leave 2^-12


class Significands(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call. `bits`: the least by operator, such as {"addmm": 24, "convolution": 11}; 53 for float64."""

    def __init__(self) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]
        self.bits: dict[str, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        parts = _in_float64(name, args, kwargs or {}, result) if name in _COMPUTED else None
        if parts is not None:
            self.bits[name] = min(self.bits.get(name, 53), _bits(*parts))
        return result


def _bits(given: Tensor, exact: Tensor) -> int:
    """The significand's bits of a result `given` that is `exact` in float64."""
    if given.dtype is torch.float64:
        return 53
    size = float(exact.norm())
    error = float((given.double() - exact).norm()) / size if size else 0.0
    return 8 if error > _LEAST else 11 if error > _LESS else 24


def _in_float64(name: str, args: Any, kwargs: dict[str, Any], result: Tensor) -> tuple[Tensor, Tensor] | None:
    """Returns (a part of the result, the same in float64); None where it has no elements or is not real."""
    if not result.is_floating_point() or not result.numel():
        return None
    if name == "convolution":
        inputs, weight, bias, *rest = args
        exact = torch.convolution(inputs[:1].double(), weight.double(), None if bias is None else bias.double(), *rest)
        return result[:1], exact
    *added, left, right = args
    if name in ("bmm", "baddbmm"):
        left, right, result = left[0], right[0], result[0]
    exact = left[:_ROWS].double() @ right[:, :_COLUMNS].double()
    part = result[:_ROWS, :_COLUMNS]
    if added:
        whole = added[0].expand(args[-2].shape[:-1] + args[-1].shape[-1:])
        whole = whole[0] if name == "baddbmm" else whole
        exact = kwargs.get("alpha", 1) * exact + kwargs.get("beta", 1) * whole[:_ROWS, :_COLUMNS].double()
    return part, exact


_COMPUTED = frozenset(("mm", "addmm", "bmm", "baddbmm", "convolution"))
