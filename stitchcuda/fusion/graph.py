"""The captured operator graph as plain records: what `capture.py` writes and everything else reads. No torch in here.

Stored as JSON in the workspace, never as an ExportedProgram: torch differs between hosts. Operators are torch's names
(`aten.layer_norm.default`) on the graph before decomposition, so `linear`, `scaled_dot_product_attention` and `lstm` stay
whole. `regions` in `partition.py` cut it; `program.py` prints it as Python.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from stitchcuda.state import Record, TensorSpec


class ValueRef(Record):
    """An argument that is a value of the graph: an input, a state tensor, or a node's output."""

    value: str


class Literal_(Record):
    """An argument that is not JSON by itself: a dtype, a device, a memory format, a layout."""

    kind: Literal["dtype", "device", "memory_format", "layout"]
    text: str                              # "float32", "cpu", "contiguous_format", "strided"


Arg = ValueRef | Literal_ | bool | int | float | str | None | tuple[Any, ...]
"""An operator's argument. Tuples nest; floats may be inf or nan (JSON writes them as strings "inf", "-inf", "nan")."""


class Node(Record):
    """One operator call. `outputs` has one entry per tensor returned; its names are the graph's value names."""

    name: str
    op: str
    args: tuple[Arg, ...] = ()
    kwargs: dict[str, Arg] = Field(default_factory=dict)
    outputs: tuple[TensorSpec, ...] = ()
    scope: str = ""                        # module path, such as "blocks.0.attn"
    scope_type: str = ""                   # class name of that module
    aliases: str | None = None             # the value whose memory output 0 shares (views, in-place results)


class StateTensor(Record):
    """A parameter, buffer or lifted constant. `key` is its state_dict key; constants and non-persistent buffers are stored
    with the program. `tied` lists further keys of the same tensor."""

    spec: TensorSpec                       # spec.name is the value name in the graph
    key: str
    kind: Literal["parameter", "buffer", "constant"]
    persistent: bool = True
    tied: tuple[str, ...] = ()


class Mutation(Record):
    """After the call, the state tensor or input named `target` holds the graph's value `value`."""

    target: str
    value: str


class OpGraph(Record):
    """A whole forward pass. `outputs` is nested lists, tuples or dicts of ValueRef and constants, as returned.

    `mutations` come from functionalisation; a node that mutates in place (BatchNorm in training) keeps its own operator
    name, and the partitioner and printer know what it updates.
    """

    inputs: tuple[TensorSpec, ...]         # tensor inputs in call order; other inputs are baked in as captured
    call: Any                              # structure of the call's arguments: nested lists/dicts with ValueRef or constants
    state: tuple[StateTensor, ...]
    nodes: tuple[Node, ...]
    outputs: Any
    mutations: tuple[Mutation, ...] = ()
    training: bool = False
    init_signature: str = ""               # of the reference's constructor, for the program's docstring
    opaque: str = ""                       # why the program could not be captured; nodes is empty then
