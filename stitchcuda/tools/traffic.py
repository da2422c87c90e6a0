"""Bytes moved by origin: own kernels, vendor libraries, framework operators. The simulator's stand-in for device time.

`Traffic` watches every aten operator of one call; the interceptor reports the kernels of the program. It also poisons fresh
allocations, so that an output which no kernel writes shows as NaN. It judges nothing: policies are in `verify.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_VENDOR = (
    "mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "linear", "convolution", "_convolution",
    "convolution_overrideable", "mkldnn_convolution", "cudnn_convolution", "cudnn_convolution_transpose",
    "mkldnn_rnn_layer", "_cudnn_rnn", "_fft_r2c", "_fft_c2c", "_fft_c2r", "_int_mm", "_scaled_mm", "mkldnn_linear",
)  # fmt: skip
_VENDOR_PREFIXES = ("_scaled_dot_product", "_flash_attention", "_efficient_attention", "linalg_", "_linalg_", "_addmm")
_LOOKUPS = ("embedding", "index", "index_select", "gather", "take")  # of the first tensor they read what they return
_ALLOCATIONS = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")


def extent_bytes(tensor: torch.Tensor) -> int:
    """Bytes a tensor occupies, each element of an expanded one counted once."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride != 0 or size == 0 else 1
    return elements * tensor.element_size()


def operator_name(func: Any) -> str:
    """"addmm" for aten.addmm.default."""
    return str(func._schema.name).split("::")[-1]


def is_allocation(func: Any) -> bool:
    return operator_name(func) in _ALLOCATIONS


def is_vendor(name: str) -> bool:
    return name in _VENDOR or name.startswith(_VENDOR_PREFIXES)


def poison(tensor: torch.Tensor) -> None:
    """Fill with NaN, or with the most negative integer: values that no honest kernel leaves behind."""
    if tensor.dtype is torch.bool or tensor.numel() == 0:
        return
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(float("nan"))
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min if tensor.dtype is not torch.uint8 else 0xA5)


class Poison(TorchDispatchMode):  # type: ignore[misc, no-untyped-call, unused-ignore]
    """Fills every fresh allocation, so that an output which nothing writes shows as NaN. Counts nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if is_allocation(func) and isinstance(result, torch.Tensor):
            poison(result)
        return result


class Traffic(Poison):  # type: ignore[no-untyped-call, unused-ignore]
    """Counts bytes per origin while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.own = 0
        self.vendor = 0
        self.framework = 0
        self.operators: dict[str, int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = super().__torch_dispatch__(func, types, args, kwargs)
        if is_allocation(func) or func.is_view:
            return result
        name = operator_name(func)
        given = tensors_of((args, kwargs))
        made = sum(extent_bytes(tensor) for tensor in tensors_of(result))
        if name in _LOOKUPS and given:
            moved = 2 * made + sum(extent_bytes(tensor) for tensor in given[1:])
        else:
            moved = made + sum(extent_bytes(tensor) for tensor in given)
        if is_vendor(name):
            self.vendor += moved
        else:
            self.framework += moved
            self.operators[name] = self.operators.get(name, 0) + moved
        return result

    def kernel(self, arguments: Iterable[Any]) -> None:
        """The program's own kernel was called with these arguments."""
        self.own += sum(extent_bytes(tensor) for tensor in tensors_of(tuple(arguments)))

    def shares(self) -> tuple[float, float, float]:
        """(own, vendor, framework), adding up to 1, or zeros when nothing moved."""
        total = self.own + self.vendor + self.framework
        return (self.own / total, self.vendor / total, self.framework / total) if total else (0.0, 0.0, 0.0)


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    found: list[torch.Tensor] = []
    _visit(value, found.append)
    return found


def _visit(value: Any, see: Callable[[torch.Tensor], None]) -> None:
    if isinstance(value, torch.Tensor):
        see(value)
    elif isinstance(value, list | tuple):
        for item in value:
            _visit(item, see)
    elif isinstance(value, dict):
        for item in value.values():
            _visit(item, see)
