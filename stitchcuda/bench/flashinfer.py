"""Turns a definition of flashinfer-bench with one of its workloads into the text of a reference, where its form allows.

A definition (JSON) names axes, input tensors and a Python function `run`; a workload (a line of JSON) gives sizes to the axes
that vary, and values to the scalars. The reference's Model calls `run`, with scalars as constants; floats are normal values.
Tensors that a workload takes from a file, whole numbers and 8-bit floats are not made up: such a definition is named as not
usable, with the reason. Nothing is run here.
Where to look next: `bench/problems.py` (who reads the files); the forms: docs of flashinfer-ai/flashinfer-bench.
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from stitchcuda.compiler.syntax import parse_module

_FLOATS = ("float32", "float16", "bfloat16")
_OURS = ("Model", "get_inputs", "get_init_inputs")
_TEMPLATE = '''{source}


import torch


class Model(torch.nn.Module):
    """{name} of flashinfer-bench, workload {uuid}."""

    def forward(self, {names}):
        return run({arguments})


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
'''


class NotUsable(Exception):
    """A definition cannot be a problem here; the message says why."""


class _Axis(BaseModel):
    type: str
    value: int | None = None


class _Tensor(BaseModel):
    shape: list[str] | None
    dtype: str


class _Definition(BaseModel):
    name: str
    axes: dict[str, _Axis]
    inputs: dict[str, _Tensor]
    reference: str


class _Workload(BaseModel):
    uuid: str
    axes: dict[str, int]
    inputs: dict[str, dict[str, Any]]

    @property
    def size(self) -> int:
        return math.prod(self.axes.values())


class _Trace(BaseModel):
    workload: _Workload


def reference_of(definition: str, workloads: Sequence[str]) -> str:
    """Returns the Python text of a reference for a definition (JSON), with the workload of median size among those (a JSON
    object each) that are usable. Raises `NotUsable`."""
    try:
        asked = _Definition.model_validate_json(definition)
        offered = [_Trace.model_validate_json(line).workload for line in workloads]
    except ValidationError as error:
        first = error.errors()[0]
        raise NotUsable(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    _check_source(asked)
    if not offered:
        raise NotUsable("it has no workload, which would say how large its axes are")
    made, why = [], ""
    for workload in sorted(offered, key=lambda workload: (workload.size, workload.uuid)):
        try:
            made.append(_written(asked, workload))
        except NotUsable as error:
            why = str(error)
    if not made:
        raise NotUsable(why)
    return made[len(made) // 2]


def _check_source(asked: _Definition) -> None:
    try:
        named = [node.name for node in parse_module(asked.reference).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    except (SyntaxError, ValueError) as error:
        raise NotUsable(f"its reference is no Python: {error}") from error
    if "run" not in named:
        raise NotUsable("its reference has no function run")
    if taken := [name for name in _OURS if name in named]:
        raise NotUsable(f"its reference defines {taken[0]}, a name that a problem needs for itself")


def _written(asked: _Definition, workload: _Workload) -> str:
    names, arguments, inputs = [], [], []
    for name, tensor in asked.inputs.items():
        if not name.isidentifier():
            raise NotUsable(f"its input {name!r} is no name in Python")
        source = workload.inputs.get(name, {"type": "random"})
        if tensor.shape is None:
            value = source.get("value")
            if not isinstance(value, int | float) or not math.isfinite(value):
                raise NotUsable(f"its workload {workload.uuid} gives no number for its scalar {name}")
            arguments.append(repr(value))
            continue
        if source["type"] != "random":
            raise NotUsable(f"its input {name} is data in a file ({source['type']})")
        if tensor.dtype not in _FLOATS:
            raise NotUsable(f"its input {name} is {tensor.dtype}, and nothing says which values it may have")
        sizes = "".join(f"{_size(asked, workload, axis)}, " for axis in tensor.shape)
        inputs.append(f"torch.randn(({sizes}), dtype=torch.{tensor.dtype})")
        names.append(name)
        arguments.append(name)
    if not names:
        raise NotUsable("it has no tensor among its inputs")
    return _TEMPLATE.format(
        source=asked.reference.rstrip(), name=json.dumps(asked.name)[1:-1], uuid=json.dumps(workload.uuid)[1:-1],
        names=", ".join(names), arguments=", ".join(arguments), inputs=", ".join(inputs),
    )  # fmt: skip


def _size(asked: _Definition, workload: _Workload, axis: str) -> int:
    known = asked.axes.get(axis)
    size = workload.axes.get(axis) if known is None or known.value is None else known.value
    if size is None:
        raise NotUsable(f"nothing says how large its axis {axis} is")
    return size
