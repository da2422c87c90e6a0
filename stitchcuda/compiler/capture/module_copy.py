"""Copies a module so that functions among its attributes refer to the copy, as minGPT's `self.mlpf = lambda x: m.c_fc(x)` must.

`copy.deepcopy` takes a function as it is: the copy's lambda would go on calling submodules of the original. A function inside a
list or dict stays as it is here too. It changes nothing of the original.
Where to look next: `compiler/capture/capture.py` (who exports a copy).
"""

from __future__ import annotations

import copy
from types import CellType, FunctionType
from typing import Any

from torch import nn


def copy_module(module: nn.Module) -> nn.Module:
    """Returns a deep copy of the module, with its parameters, buffers and attributes."""
    copies: dict[int, Any] = {}            # by the id of the original
    copied = copy.deepcopy(module, copies)

    def counterpart(value: Any) -> Any:
        return copies.get(id(value), value)

    for part in copied.modules():
        for name, value in list(vars(part).items()):
            if isinstance(value, FunctionType) and (value.__closure__ or value.__defaults__):
                cells = tuple(_cell_with(cell, counterpart) for cell in value.__closure__ or ())
                defaults = tuple(map(counterpart, value.__defaults__ or ()))
                rebuilt = FunctionType(value.__code__, value.__globals__, value.__name__, defaults, cells)
                rebuilt.__kwdefaults__ = value.__kwdefaults__
                rebuilt.__dict__.update(value.__dict__)
                setattr(part, name, rebuilt)
    return copied


def _cell_with(cell: CellType, counterpart: Any) -> CellType:
    try:
        return CellType(counterpart(cell.cell_contents))
    except ValueError:                     # it is empty
        return cell
