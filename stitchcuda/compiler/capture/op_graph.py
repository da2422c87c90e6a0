"""Defines the captured operator graph: nodes, tensors, state and in-place updates as plain records. No torch in here.

Graphs are stored as JSON in the workspace, never as an ExportedProgram, because torch differs between hosts. Operators have
torch's names (`aten.layer_norm.default`) from the graph before decomposition, so `linear`, `scaled_dot_product_attention` and
`lstm` stay whole.

Where to look next: `compiler/capture/capture.py` (makes it), `compiler/regions/partition.py` (cuts it into regions),
`compiler/printing/program.py` (prints it as Python).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer

from stitchcuda.state import Record, TensorSpec


class ValueRef(Record):
    """An argument that is a value of the graph: an input, a state tensor, or a node's output."""

    value: str


class Literal_(Record):
    """An argument that is not JSON by itself: a dtype, a device, a memory format, a layout."""

    kind: Literal["dtype", "device", "memory_format", "layout"]
    text: str  # "float32", "cpu", "contiguous_format", "strided"


Arg = ValueRef | Literal_ | bool | int | float | str | None | tuple[Any, ...]
"""An operator's argument. Tuples nest; floats may be inf or nan."""


def _to_json(item: Any) -> Any:
    """Returns plain JSON for an argument or a structure; tuples, dicts, inf and nan become objects (`{"tuple": [...]}`)."""
    if isinstance(item, Record):
        return item.model_dump()
    if isinstance(item, tuple):
        return {"tuple": [_to_json(part) for part in item]}
    if isinstance(item, list):
        return [_to_json(part) for part in item]
    if isinstance(item, dict):
        return {"dict": [[key, _to_json(part)] for key, part in item.items()]}
    if isinstance(item, float) and not math.isfinite(item):
        return {"float": str(item)}
    return item


def _from_json(item: Any) -> Any:
    """Inverts `_to_json`; records and tuples that were never JSON pass unchanged."""
    if isinstance(item, list):
        return [_from_json(part) for part in item]
    if isinstance(item, tuple):
        return tuple(_from_json(part) for part in item)
    if not isinstance(item, dict):
        return item
    match item:
        case {"value": str()} if len(item) == 1:
            return ValueRef(**item)
        case {"kind": str(), "text": str()} if len(item) == 2:
            return Literal_(**item)
        case {"tuple": list(parts)} if len(item) == 1:
            return tuple(_from_json(part) for part in parts)
        case {"dict": list(pairs)} if len(item) == 1:
            return {key: _from_json(part) for key, part in pairs}
        case {"float": str(text)} if len(item) == 1:
            return float(text)
    return {key: _from_json(part) for key, part in item.items()}


_Structure = Annotated[Any, BeforeValidator(_from_json), PlainSerializer(_to_json, when_used="json")]
_Args = Annotated[tuple[Arg, ...], BeforeValidator(_from_json), PlainSerializer(_to_json, when_used="json")]
_Kwargs = Annotated[dict[str, Arg], BeforeValidator(_from_json), PlainSerializer(_to_json, when_used="json")]
"""Fields that survive JSON exactly: tuples stay tuples, references stay references, inf and nan stay numbers."""


class Node(Record):
    """One operator call. `outputs` has one entry per tensor returned; its names are the graph's value names."""

    name: str
    op: str
    args: _Args = ()
    kwargs: _Kwargs = Field(default_factory=dict)
    outputs: tuple[TensorSpec, ...] = ()
    scope: str = ""  # module path, such as "blocks.0.attn"
    scope_type: str = ""  # class name of that module
    aliases: str | None = None  # the value whose memory output 0 shares (views, in-place results)
    draws: bool = False  # takes random numbers from torch's generator


class StateTensor(Record):
    """A parameter, buffer or lifted constant. `key` is its state_dict key; constants and non-persistent buffers are stored
    with the graph and the program. What is prepared is made from other state (`OpGraph.prepared`). `tied` lists further keys of
    the same tensor."""

    spec: TensorSpec  # spec.name is the value name in the graph
    key: str
    kind: Literal["parameter", "buffer", "constant", "prepared"]
    persistent: bool = True
    tied: tuple[str, ...] = ()


class Mutation(Record):
    """The call updates the state tensor or input named `target`; afterwards it holds the graph's value `value`. Where
    operators of the graph write it in place (as captured graphs do), `value` is `target` itself."""

    target: str
    value: str


class Preparation(Record):
    """State tensors that a function of `compiler/printing/prelude.py` makes from the state tensor `source` alone. A program
    makes them at its first call, and anew where `source` has changed since."""

    function: str
    source: str
    results: tuple[str, ...]  # values of graph.state, of the kind "prepared"
    options: tuple[tuple[str, int], ...] = ()  # arguments of the function by name


class OpGraph(Record):
    """A whole forward pass. `outputs` is nested lists, tuples or dicts of ValueRef and constants, as returned.

    A node that mutates in place (BatchNorm in training) keeps its own operator name; `compiler/capture/dependencies.py` says
    what each node writes and which nodes must stay in order because of it. In-place operators on temporaries appear in their
    functional form.
    """

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    inputs: tuple[TensorSpec, ...]  # tensor inputs in call order; other inputs are baked in as captured
    call: _Structure  # {"args": tuple, "kwargs": dict, "names": of the positional arguments}
    state: tuple[StateTensor, ...]
    nodes: tuple[Node, ...]
    outputs: _Structure
    mutations: tuple[Mutation, ...] = ()
    rewritten: tuple[str, ...] = ()  # by which of `compiler/templates`, in order
    prepared: tuple[Preparation, ...] = ()  # in rewritten graphs
    training: bool = False
    mode_matters: bool = False  # holds batch norm, dropout, ...: the other mode would compute something else
    init_signature: str = ""  # of the reference's constructor, for the program's docstring
    packages: tuple[str, ...] = ()  # Python modules that must be imported: they register operators that nodes call
    constants: bytes = b""  # safetensors: values of constants and non-persistent buffers by StateTensor.key
    opaque: str = ""  # why the program could not be captured; nodes is empty then


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns row-major strides in elements, as torch gives them (a size of 0 counts as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= max(size, 1)
    return tuple(strides)
