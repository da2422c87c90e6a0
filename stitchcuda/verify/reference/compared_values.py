"""Reads from a call of one of torch's operators which values it compares its argument with: `x > 0.5`, `ids == 103`, clamp.

Random inputs hardly ever meet such a value, so that `>=` in place of `>`, or a token that is never treated apart, would pass.
Values that come from parameters are not known here. Pure functions on arguments.
Where to look next: `verify/reference/operator_uses.py` (who calls), `with_compared` in `verify/inputs/value_changes.py` (what
inputs get).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

COMPARE = frozenset(("eq", "ne", "ge", "le", "gt", "lt"))
_LIMITS = frozenset(("clamp", "clamp_min", "clamp_max", "clip", "hardtanh"))
_SHRINK = frozenset(("hardshrink", "softshrink"))
_WHOLE = (-2.0, -1.0, 1.0, 2.0)
_KNOWN = {
    "atan2": (0.0, -0.0), "binary_cross_entropy": (0.0, 1.0), "ceil": _WHOLE, "copysign": (0.0, -0.0), "floor": _WHOLE,
    "frac": _WHOLE, "hardsigmoid": (-3.0, 3.0), "hardswish": (-3.0, 3.0), "heaviside": (0.0,),
    "round": (-2.5, -1.5, -0.5, 0.5, 1.5, 2.5), "sgn": (0.0,), "sign": (0.0,), "signbit": (0.0, -0.0), "sinc": (0.0,),
    "trunc": _WHOLE, "xlogy": (0.0,),
}  # fmt: skip
"""Where the operators themselves treat values apart."""
_PERIODS = frozenset(("fmod", "remainder", "floor_divide"))
_MOST, _LONGEST = 16, 256                  # values of one operator, of a list of at most so many


def read_compared(name: str, args: Sequence[Any]) -> list[tuple[int, tuple[float, ...]]]:
    """Returns which of the operator's tensors, by position, are compared with which finite values. `name`: without "aten::",
    such as "gt"."""
    name = name.rstrip("_")
    tensors = [place for place, argument in enumerate(args) if isinstance(argument, Tensor)]
    if "embedding_bag" in name:            # its last argument is the row that is left out, -1 for none
        return [(1, (float(args[-1]),))] if isinstance(args[-1], int) and args[-1] > 0 else []
    if name == "searchsorted" and len(args) > 1 and isinstance(args[1], Tensor):
        return [(1, _finite(_numbers(args[0])))]
    if name in _KNOWN:
        return [(place, _KNOWN[name]) for place in tensors]
    return [(0, values)] if tensors[:1] == [0] and (values := _first_compared(name, args)) else []


def _first_compared(name: str, args: Sequence[Any]) -> tuple[float, ...]:
    given = [value for argument in args[1:] for value in _numbers(argument)]
    if name in COMPARE or name in _LIMITS or name in ("bucketize", "fmax", "fmin", "isin", "maximum", "minimum"):
        return _finite(given)
    if name == "threshold":
        return _finite(given[:1])          # the second is what takes its place
    if name == "histc":
        return _finite(given[1:])          # after the number of bins; edges between these are rounded
    if name in _SHRINK:
        edge = given[0] if given else 0.5
        return _finite((-edge, edge))
    return _finite((given[0], -given[0], 2 * given[0])) if name in _PERIODS and len(given) == 1 else ()


def _numbers(argument: Any) -> list[float]:
    """The numbers of a plain argument, or of a small tensor."""
    if isinstance(argument, bool) or argument is None:
        return []
    if isinstance(argument, int | float):
        return [argument]
    small = isinstance(argument, Tensor) and argument.layout is torch.strided and argument.numel() <= _LONGEST
    plain = small and not argument.is_meta and not argument.is_complex() and argument.dtype is not torch.bool
    return argument.detach().flatten().tolist() if plain else []


def _finite(values: Sequence[float]) -> tuple[float, ...]:
    found = tuple(dict.fromkeys(value for value in values if math.isfinite(value)))
    return found[:: -(-len(found) // _MOST)] if found else ()
