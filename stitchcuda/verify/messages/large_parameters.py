"""Constructs modules whose large parameters lie on the GPU from the start, in the reference's worker and in programs' workers.

Drawing a gigabyte of initial values takes the CPU seconds and a gigabyte of the host's memory; the GPU takes milliseconds. A
parameter that is smaller stays where the constructor puts it, and so does every tensor that is no parameter. Both sides draw in
the same way, so a program that draws what it lacks with the constructor's seed still gets the reference's values.
Where to look next: `verify/reference/reference.py` and `verify/program/program_worker.py` (who construct).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

LARGE = 2**26                              # bytes of a parameter

_Module = TypeVar("_Module", bound=nn.Module)


def construct(make: Callable[[], _Module], seed: int, device: torch.device | str) -> _Module:
    """Returns `make()` after torch.manual_seed(`seed`), with its large parameters on `device`. If the constructor fails with
    parameters there, as one may that mixes them with tensors on the CPU, it is called once more without."""
    torch.manual_seed(seed)
    if torch.device(device).type != "cuda":
        return make()
    moved = [0]

    def move(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if type(parameter) is nn.Parameter and parameter.device.type == "cpu" and parameter.nbytes >= LARGE:
            parameter.data = parameter.data.to(device)  # the object stays the same, for whoever else holds it
            moved[0] += 1

    hook = register_module_parameter_registration_hook(move)
    try:
        return make()
    except Exception:
        if not moved[0]:
            raise
    finally:
        hook.remove()
    torch.manual_seed(seed)
    return make()
