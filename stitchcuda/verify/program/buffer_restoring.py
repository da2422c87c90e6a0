"""Puts a program's buffers back between timed calls, without running any code of the program.

A program may override `state_dict` or attribute access and use the call to compute ahead. So the tensors are found once, before
timing, and later looked up in the dictionaries in which `nn.Module` keeps them, because an honest forward may replace a buffer
by a new tensor. What is found there and is no plain tensor of the same shape is left alone: the outputs that follow from it are
compared anyway.
Where to look next: `verify/timing/timed_calls.py` (timed calls), `verify/program/state_loading.py` (which tensors these are).
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
_DICTIONARIES = (dict, OrderedDict)        # which of the two nn.Module uses depends on torch's version


class BufferRestoring:
    """Writes `values` (by the program's own names) into its buffers and parameters, as often as `apply` is called."""

    def __init__(self, program: torch.nn.Module, values: Mapping[str, torch.Tensor], found: Mapping[str, torch.Tensor]) -> None:
        """`found`: the program's tensors by the names of its state_dict, read before timing begins."""
        self._buffers: list[_Buffer] = []
        for name, value in values.items():
            tensor = found[name]
            if type(tensor) in _PLAIN and tensor.shape == value.shape:
                last = name.rpartition(".")[2]
                self._buffers.append(_Buffer(_find_dictionary(program, name), last, tensor, alias(tensor), value))

    def apply(self) -> None:
        """Gives every buffer its value from before the first call."""
        for buffer in self._buffers:
            now: Any = buffer.theirs if buffer.dictionary is None else dict.get(buffer.dictionary, buffer.name)
            if now is not buffer.theirs and type(now) in _PLAIN and now.shape == buffer.value.shape:
                buffer.theirs, buffer.ours = now, alias(now)
            buffer.ours.copy_(buffer.value)


@dataclass
class _Buffer:
    """One buffer or parameter. `theirs` is the program's tensor object, `ours` another object for the same memory, since the
    program may change the class of its own."""

    dictionary: dict[str, Any] | None
    name: str
    theirs: torch.Tensor
    ours: torch.Tensor
    value: torch.Tensor


def held_tensor(program: torch.nn.Module, name: str) -> torch.Tensor | None:
    """Returns the plain tensor that `nn.Module` keeps under this name of the state_dict, found without code of the program;
    None if there is none."""
    tensor: Any = (_find_dictionary(program, name) or {}).get(name.rpartition(".")[2])
    return alias(tensor) if type(tensor) in _PLAIN else None


def _find_dictionary(program: torch.nn.Module, name: str) -> dict[str, Any] | None:
    """The dictionary in which `nn.Module` keeps a buffer or parameter; None where the program keeps it elsewhere."""
    *modules, last = name.split(".")
    attributes = _read_attributes(program)
    for module in modules:
        attributes = _read_attributes(_as_dictionary(attributes.get("_modules")).get(module))
    return next((found for found in (_as_dictionary(attributes.get(place)) for place in _PLACES) if last in found), None)


def _read_attributes(thing: object) -> dict[str, Any]:
    """An object's `__dict__`, read without its class' own `__getattribute__`."""
    try:
        return _as_dictionary(object.__getattribute__(thing, "__dict__"))
    except AttributeError:
        return {}


def _as_dictionary(value: object) -> dict[str, Any]:
    """`value` if it is a dict or OrderedDict itself, else an empty dict: a subclass could run code when it is read."""
    return value if type(value) in _DICTIONARIES else {}  # type: ignore[return-value]
