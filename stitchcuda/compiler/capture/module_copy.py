"""Copies a module so that functions among its attributes refer to the copy, as minGPT's `self.mlpf = lambda x: m.c_fc(x)` must.

`copy.deepcopy` takes a function as it is: the copy's lambda would go on calling submodules of the original. A function inside a
list or dict stays as it is here too. It changes nothing of the original.
Where to look next: `compiler/capture/capture.py` (who exports a copy).
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from types import CellType, FunctionType, MethodType
from typing import Any

from torch import nn


def copy_module(module: nn.Module) -> nn.Module:
    """Returns a deep copy of the module, with its parameters, buffers and attributes."""
    copies: dict[int, Any] = {}            # by the id of the original
    copied = copy.deepcopy(module, copies)
    functions: dict[int, FunctionType] = {}
    for part in copied.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, FunctionType) and _refers(value, copies, set()):
                setattr(part, name, _rebuilt(value, copies, functions))
    return copied


def _referred(function: FunctionType) -> Iterator[Any]:
    """What a function holds: values of enclosing functions, and defaults."""
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):              # an empty one
            yield cell.cell_contents
    yield from function.__defaults__ or ()


def _refers(value: Any, copies: dict[int, Any], seen: set[int]) -> bool:
    """Whether a function or bound method leads to something that was copied."""
    if isinstance(value, MethodType):
        return id(value.__self__) in copies
    if not isinstance(value, FunctionType) or id(value) in seen:
        return False
    seen.add(id(value))
    return any(id(held) in copies or _refers(held, copies, seen) for held in _referred(value))


def _rebuilt(function: FunctionType, copies: dict[int, Any], functions: dict[int, FunctionType]) -> FunctionType:
    """Returns the function with the copies of what it holds. `functions`: those that were rebuilt, by the id of the original; a
    function may hold itself."""
    if id(function) in functions:
        return functions[id(function)]
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, function.__globals__, function.__name__, None, cells)
    functions[id(function)] = made

    def counterpart(value: Any) -> Any:
        if id(value) in copies:
            return copies[id(value)]
        if not _refers(value, copies, set()):
            return value
        if isinstance(value, MethodType):
            return MethodType(value.__func__, copies[id(value.__self__)])
        return _rebuilt(value, copies, functions)

    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):
            cell.cell_contents = counterpart(original.cell_contents)
    made.__defaults__ = function.__defaults__ and tuple(map(counterpart, function.__defaults__))
    made.__kwdefaults__ = function.__kwdefaults__
    made.__dict__.update(function.__dict__)
    return made
