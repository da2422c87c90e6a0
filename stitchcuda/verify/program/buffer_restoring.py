"""Buffers put back as they were, between timed calls, without running anything of the program that owns them.

A program may override `state_dict` or attributes and work there for its next call. So the tensors are found once, and later
looked for where `nn.Module` itself keeps them: an honest forward may put a new tensor in a buffer's place. What is found there
and is no plain tensor of the same layout stays as it is; its outputs are compared. Where to look next:
`verify/timing/timed_calls.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from stitchcuda.verify.messages.shared_tensors import alias

_PLACES = ("_buffers", "_parameters")
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_DICTIONARIES = (dict, OrderedDict)        # which of them is torch's own choice depends on its version


class BufferRestoring:
    """`values` by name, to be written into a program's own tensors again and again."""

    def __init__(self, program: torch.nn.Module, values: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> None:
        """`found`: the program's tensors as its state_dict names them, asked for while there is nothing to gain."""
        self._kept: list[_Kept] = []
        for name, value in values.items():
            tensor = found[name]
            if type(tensor) in _PLAIN and tensor.shape == value.shape:
                self._kept.append(_Kept(_home(program, name), name.rpartition(".")[2], tensor, alias(tensor), value))

    def apply(self) -> None:
        """As before the first call."""
        for one in self._kept:
            now: Any = one.theirs if one.home is None else dict.get(one.home, one.name)
            if now is not one.theirs and type(now) in _PLAIN and now.shape == one.value.shape:
                one.theirs, one.ours = now, alias(now)
            one.ours.copy_(one.value)


@dataclass
class _Kept:
    """One buffer: the program's object and ours for the same memory."""

    home: dict[str, Any] | None
    name: str
    theirs: torch.Tensor
    ours: torch.Tensor
    value: torch.Tensor


def _home(program: torch.nn.Module, name: str) -> dict[str, Any] | None:
    """The dictionary that `nn.Module` keeps a buffer or parameter in; None where the program keeps it elsewhere."""
    *modules, last = name.split(".")
    held = _own(program)
    for module in modules:
        held = _own(_plain(held.get("_modules")).get(module))
    return next((place for place in (_plain(held.get(one)) for one in _PLACES) if last in place), None)


def _own(thing: object) -> dict[str, Any]:
    """What an object's own attributes are kept in, whatever its class makes of the question."""
    try:
        return _plain(object.__getattribute__(thing, "__dict__"))
    except AttributeError:
        return {}


def _plain(value: object) -> dict[str, Any]:
    """The dictionary itself; an empty one for one that is somebody's own class."""
    return value if type(value) in _DICTIONARIES else {}  # type: ignore[return-value]
