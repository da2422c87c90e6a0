"""Writes the signature of a program's forward, its return statement, and its checks of constant arguments.

Tensors keep their names; everything else is fixed at the value that was captured, and another value raises ValueError in the
program. It makes text only and needs no torch.

Where to look next: `compiler/printing/program.py` (checks of shapes and modes), `compiler/printing/idioms.py` (values as text).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stitchcuda.compiler.capture.dependencies import references
from stitchcuda.compiler.capture.op_graph import Literal_, OpGraph, ValueRef
from stitchcuda.compiler.printing.idioms import literal, quote
from stitchcuda.compiler.printing.variables import variable


@dataclass
class Signature:
    """Parts of `forward`: `parameters` as written after self, `opening` the lines that unpack nested arguments and check
    constants, `names` the variable of each input value."""

    parameters: list[str] = field(default_factory=list)
    opening: list[str] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


def make_signature(graph: OpGraph) -> Signature:
    """Returns the signature of the captured call: tensors by name, everything else fixed at its captured value."""
    made = Signature()
    taken: set[str] = set()
    positional, named = graph.call["args"], graph.call["kwargs"]
    without_default = [any(references(item)) or isinstance(item, tuple | list | dict) for item in positional]
    for position, (label, item) in enumerate(zip(graph.call["names"], positional, strict=True)):
        _parameter(made, _free(label, taken), item, optional=not any(without_default[position:]))
    if named:
        made.parameters.append("*")
    for label, item in named.items():
        taken.add(label)
        _parameter(made, label, item, optional=True)
    return made


def _free(label: str, taken: set[str]) -> str:
    name = variable(label) if label in ("self", "torch", "nn", "device", "kernels") else label
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _parameter(made: Signature, name: str, item: Any, *, optional: bool) -> None:
    if isinstance(item, ValueRef):
        made.parameters.append(f"{name}: Tensor")
        made.names[item.value] = name
    elif isinstance(item, tuple | list | dict):
        made.parameters.append(f"{name}: {type(item).__name__}")
        _unpack(made, name, item, name)
    else:
        text = literal(item, str)
        if isinstance(item, Literal_) and item.kind == "device":
            made.parameters.append(f"{name}: object = None")
            return
        made.parameters.append(f"{name}: object = {text}" if optional else f"{name}: object")
        if not (isinstance(item, float) and math.isnan(item)):
            compare = f"{name} is not {text}" if item is None or isinstance(item, bool) else f"{name} != {text}"
            message = quote(f"{name} is fixed at {text} in this program: optimize again for another value.")
            made.opening += [f"if {compare}:", f"    raise ValueError({message})"]


def _unpack(made: Signature, text: str, item: Any, label: str) -> None:
    pairs = item.items() if isinstance(item, dict) else enumerate(item)
    for key, part in pairs:
        place = f"{text}[{literal(key, str)}]"
        if isinstance(part, ValueRef):
            name = variable(f"{label}_{key}")
            while name in made.names.values():
                name += "_"
            made.opening.append(f"{name} = {place}")
            made.names[part.value] = name
        elif isinstance(part, tuple | list | dict):
            _unpack(made, place, part, f"{label}_{key}")


def return_expression(outputs: Any, name: Callable[[str], str]) -> str:
    """Returns the nested result as Python text; `name` gives the variable of a value."""
    if isinstance(outputs, dict):
        return "{" + ", ".join(f"{quote(key)}: {return_expression(part, name)}" for key, part in outputs.items()) + "}"
    if isinstance(outputs, list):
        return "[" + ", ".join(return_expression(part, name) for part in outputs) + "]"
    if isinstance(outputs, tuple):
        inner = ", ".join(return_expression(part, name) for part in outputs)
        return f"({inner},)" if len(outputs) == 1 else f"({inner})"
    return literal(outputs, name)

