"""Writes the forward pass of a program that replays itself as a CUDA graph: `forward` around `compute`.

Results that the pass makes come from the graph and are copied out of its buffers. Results that are inputs or parameters, or
views of them, are made in `forward`, so that callers see the same aliasing as with the reference. It makes text only.

Where to look next: `compiler/printing/prelude.py` (the class `GraphReplay`), `compiler/printing/program.py` (the caller).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from stitchcuda.compiler.capture.dependencies import memory_owners, references
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.printing.idioms import expression, indent, literal
from stitchcuda.compiler.printing.signature import Signature, return_expression
from stitchcuda.compiler.printing.statement_order import specs_by_name
from stitchcuda.compiler.printing.variables import Variables
from stitchcuda.state import TensorSpec


def write_replayed_forward(
    graph: OpGraph, made: Signature, names: Variables, checks: Sequence[str], opening: Sequence[str], body: Sequence[str]
) -> list[str]:
    """Returns the lines of `forward` and `compute`. Raises `ValueError` for a program without tensor inputs."""
    if not graph.inputs:
        raise ValueError("A program without tensor inputs cannot be replayed as a CUDA graph.")
    owner, known = memory_owners(graph), specs_by_name(graph)
    given = {spec.name for spec in graph.inputs} | {entry.spec.name for entry in graph.state}
    outputs = list(dict.fromkeys(references(graph.outputs)))
    fresh = [value for value in outputs if owner[value] not in given]
    tensors = [made.names[spec.name] for spec in graph.inputs]
    forward = list(checks)
    if graph.prepared:
        forward += ["if self._prepared.update():", "    self._replay.forget()"]
    call = f"self._replay({', '.join(tensors)})"
    text = {value: names.text[value] for value in outputs}
    if fresh:
        bound = ", ".join(text[value] for value in fresh) + ("," if len(fresh) == 1 else "")
        simple = all(_dense(known[value]) for value in fresh) and max(Counter(owner[v] for v in fresh).values()) == 1
        if simple:
            forward.append(f"{bound} = {call}")
            text |= {value: f"{text[value]}.clone()" for value in fresh}
        else:  # deepcopy keeps shared memory and gaps as they are; clone() does not
            forward.append(f"{bound} = copy.deepcopy({call})")
    else:
        forward.append(call)
    chain = _views(graph, [value for value in outputs if owner[value] in given])
    views = Variables(graph.model_copy(update={"nodes": tuple(chain)}), chain, made.names)
    views.reserve(text[value] for value in fresh)
    for position, node in enumerate(chain):
        written = expression(node, lambda arg: literal(arg, views.text.__getitem__), known)
        bound = ", ".join(views.name_results(position, node))
        forward.append(f"{bound} = {written}")
    text |= {value: views.text[value] for value in outputs if owner[value] in given}
    forward.append(f"return {return_expression(graph.outputs, text.__getitem__)}")
    results = ", ".join(names.text[value] for value in fresh)
    compute = [*opening, *body, f"return ({results}{',' if len(fresh) == 1 else ''})"]
    return [
        f"def forward({', '.join(['self', *made.parameters])}):",
        *indent(forward),
        "",
        f"def compute({', '.join(['self', *(f'{name}: Tensor' for name in tensors)])}) -> tuple[Tensor, ...]:",
        '    """One call, recorded by GraphReplay: everything that the device does."""',
        *indent(compute),
    ]


def _views(graph: OpGraph, values: Sequence[str]) -> list[Node]:
    """Returns the view operators that make these values from inputs and state, in order."""
    producer = {output.name: node for node in graph.nodes for output in node.outputs}
    wanted: set[str] = set()
    stack = list(values)
    while stack:
        node = producer.get(stack.pop())
        if node is not None and node.name not in wanted and node.aliases is not None:
            wanted.add(node.name)
            stack.append(node.aliases)
    return [node for node in graph.nodes if node.name in wanted]


def _dense(spec: TensorSpec) -> bool:
    """Whether the tensor fills its memory without gaps or overlaps, so that clone() keeps its strides."""
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(spec.shape, spec.strides, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return True
