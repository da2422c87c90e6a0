"""Adds running sums on the CPU in float32, as a GPU does, so that the reference's own error is that of float32.

torch's CPU adds the `cumsum` of float32 in float64 and rounds each sum. Where large terms cancel, such a reference has nearly
no error, and a program that adds in float32 would be refused. Sums and means need none of this: torch adds them in float32
everywhere. The sums are made as a tree is (Hillis and Steele, 1986), with the error of a good scan. A mode of torch's
dispatcher. It compares nothing.
Where to look next: `verify/reference/float64_truth.py` (which calls run under it), `verify/compare/bound.py` (the bound).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Float32RunningSums(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches a call. What is not a `cumsum` with a float32 result on the CPU stays as it is."""

    supports_higher_order_operators = True  # the float64 call says that they cannot be judged

    def __init__(self) -> None:
        super().__init__()                 # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        summed = getattr(func, "overloadpacket", None) in (torch.ops.aten.cumsum, torch.ops.aten.cumsum_)
        terms = args[0].clone() if summed else None  # in place, the result takes their memory
        result = func(*args, **(kwargs or {}))
        if terms is not None and result.dtype is torch.float32 and result.is_cpu and result.dim():
            result.copy_(_add_up(terms.float(), args[1]))
        return result


def _add_up(terms: Tensor, axis: int) -> Tensor:
    """The running sums along the axis."""
    length, step, sums = terms.shape[axis], 1, terms
    while step < length:
        later = sums.narrow(axis, step, length - step) + sums.narrow(axis, 0, length - step)
        sums, step = torch.cat((sums.narrow(axis, 0, step), later), axis), 2 * step
    return sums
