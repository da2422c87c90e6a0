"""Writes the statements of a program's forward pass, one section per block of the reference.

A forward pass of more than `SPLIT_LINES` lines is split into a method per block, and blocks with equal text share a method. A
block is a module up to its first number (`layers.3`), else its first name. Dead values of at least `_DELETE_BYTES` are deleted
at the end of a section. It makes text only.

Where to look next: `compiler/printing/statement_order.py` (the order of statements), `compiler/printing/idioms.py` (how an
operator is written), `compiler/printing/program.py` (everything around the statements).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from stitchcuda.compiler.capture.dependencies import memory_owners, reads
from stitchcuda.compiler.capture.op_graph import Node, OpGraph, contiguous_strides
from stitchcuda.compiler.printing.idioms import expression, literal
from stitchcuda.compiler.printing.statement_order import KernelCall, Unit, relevant_strides, specs_by_name
from stitchcuda.compiler.printing.variables import Variables, in_place, state_expression
from stitchcuda.state import TensorSpec

SPLIT_LINES = 60
"""A forward longer than this is split into a method per block."""
_DELETE_BYTES = 2**20
"""Dead values at least this large are deleted at the end of a section when their name is not bound again."""
_ROOT = "the module itself"


@dataclass
class BodySection:
    """Consecutive lines of one block of the reference, and the variables that they take and leave."""

    path: str  # the block's module path; "" for the root module
    lines: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)  # variables read before they are bound here
    binds: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)  # bound variables that are read later


def write_sections(graph: OpGraph, units: Sequence[Unit], names: Variables) -> list[BodySection]:
    """Returns all statements, in order, as sections. `link_sections` has to fill in `gives`.

    A kernel's outputs are allocated right before its call.
    """
    known, owner = specs_by_name(graph), memory_owners(graph)
    count = Counter(node.scope for node in graph.nodes)
    kinds = {node.scope: node.scope_type for node in graph.nodes}
    inputs_or_state = {spec.name for spec in graph.inputs} | {entry.spec.name for entry in graph.state}

    def placed(unit: Unit) -> str:  # a module of one or two operators is shown as part of its parent
        scope = unit.covered[-1].scope if isinstance(unit, KernelCall) else unit.scope
        return scope if count[scope] > 2 or not scope else scope.rpartition(".")[0]

    result: list[BodySection] = []
    where = None
    for position, unit in enumerate(units):
        place = placed(unit)
        path = _block(place)
        if not result or result[-1].path != path:
            result.append(BodySection(path))
        section = result[-1]
        if place != where or not section.lines:
            section.lines += _heading(place, kinds.get(place, ""), blank=bool(section.lines))
            where = place
        section.needs += _variables_read(unit, names, section.binds)
        if isinstance(unit, KernelCall):
            section.lines += _kernel_call(unit, names, position, known)
            section.binds += [names.text[value] for value in unit.of_role("out")]
        else:
            lines, bound = _operator(unit, names, position, known)
            section.lines += lines
            section.binds += bound
        if position + 1 < len(units) and _block(placed(units[position + 1])) != path:
            dead = [(name, value) for name, value in names.dead_names(position) if name in section.binds]
            large = [
                name for name, value in dead if owner[value] not in inputs_or_state and _bytes(known[value]) >= _DELETE_BYTES
            ]
            if large:
                section.lines.append(f"del {', '.join(dict.fromkeys(large))}")
    return result


def link_sections(parts: list[BodySection], returned: Sequence[str]) -> None:
    """Fills in `gives` from what later sections and the return statement read."""
    wanted = set(returned)
    for section in reversed(parts):
        section.gives = [name for name in dict.fromkeys(section.binds) if name in wanted]
        wanted = (wanted - set(section.binds)) | set(section.needs)
        section.needs = list(dict.fromkeys(section.needs))


def _block(scope: str) -> str:
    """Returns the block that a module belongs to: its path up to the first number (`layers.3`), else its first name."""
    parts = scope.split(".")
    for position, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: position + 1])
    return parts[0]


def _heading(place: str, kind: str, *, blank: bool) -> list[str]:
    title = f"{place} ({kind})" if place and kind else place or _ROOT
    return [*([""] if blank else []), f"# {title}"]


def _variables_read(unit: Unit, names: Variables, bound: Sequence[str]) -> list[str]:
    values = unit.of_role("in", "inout") if isinstance(unit, KernelCall) else reads(unit)
    texts = [names.text[value] for value in values]
    return [text for text in texts if text.isidentifier() and text not in bound]


def _operator(node: Node, names: Variables, position: int, known: dict[str, TensorSpec]) -> tuple[list[str], list[str]]:
    written = expression(node, lambda arg: literal(arg, names.text.__getitem__), known)
    bound = names.name_results(position, node)
    if in_place(node) or not bound or all(name == "_" for name in bound):
        return [written], []
    single = len(bound) == 1
    left = ", ".join(bound)
    if single and _is_list(node):
        left += ","
    return [f"{left} = {written}"], [name for name in bound if name != "_"]


def _is_list(node: Node) -> bool:
    """Whether the operator returns a list, even when it has a single entry."""
    return node.op.split(".")[1] in (
        "chunk",
        "split",
        "split_with_sizes",
        "unbind",
        "tensor_split",
        "hsplit",
        "vsplit",
        "meshgrid",
    )


def _kernel_call(call: KernelCall, names: Variables, position: int, known: dict[str, TensorSpec]) -> list[str]:
    taken = {value: names.text[value] for value in call.of_role("in", "inout")}
    names.name_results(position, call)
    lines = [f"# {call.stitch.region}: {kernel_title(call)}"]
    for value in call.of_role("out"):
        lines.append(f"{names.text[value]} = {_allocation(known[value])}")
    values = [taken.get(value) or names.text[value] for value in call.values]
    size = call.stitch.source.workspace_bytes
    if size:
        values.append("self.workspace(device)")
    lines.append(f"kernels.{call.stitch.kernel.name}({', '.join(values)})")
    return lines


def kernel_title(call: KernelCall) -> str:
    """Returns a kernel call's title, such as `add + layer_norm`, from the operators that it replaces; views are left out."""
    operators = [node.op.split(".")[1] for node in call.covered if node.aliases is None]
    return " + ".join(operators or [node.op.split(".")[1] for node in call.covered])


def _allocation(spec: TensorSpec) -> str:
    shape = f"({', '.join(map(str, spec.shape))}{',' if len(spec.shape) == 1 else ''})"
    if relevant_strides(spec.shape, spec.strides) == relevant_strides(spec.shape, contiguous_strides(spec.shape)):
        return f"torch.empty({shape}, dtype=torch.{spec.dtype}, device=device)"
    return f"torch.empty_strided({shape}, {spec.strides}, dtype=torch.{spec.dtype}, device=device)"


def _bytes(spec: TensorSpec) -> int:
    width = {"float64": 8, "int64": 8, "complex64": 8, "complex128": 16, "float16": 2, "bfloat16": 2, "int16": 2}
    return spec.elements * width.get(spec.dtype, 1 if spec.dtype in ("bool", "int8", "uint8") else 4)


def write_forward(parts: list[BodySection], keys: Sequence[str]) -> tuple[list[str], list[str]]:
    """Returns the lines of the forward pass, and the lines of the methods that it calls (none up to `SPLIT_LINES` lines).

    `keys` are the state_dict's: no method takes the name of one, and they tell which tensors belong to a block.
    """
    if sum(len(part.lines) for part in parts) <= SPLIT_LINES:
        lines: list[str] = []
        for part in parts:
            lines += ([""] if lines else []) + part.lines
        only_root = all(not part.path for part in parts)
        return [line for line in lines if not (only_root and line == f"# {_ROOT}")], []
    methods: list[str] = []
    forward: list[str] = []
    bodies: dict[tuple[str, ...], str] = {}
    taken = {key.split(".")[0] for key in keys}
    for part in parts:
        if not part.path or len(part.lines) < 4:
            forward += [line for line in part.lines if line != f"# {_ROOT}"]
            continue
        own = state_expression(f"{part.path}.weight", [*keys, f"{part.path}.weight"]).removesuffix(".weight")
        # `self.blocks[0].` → `block.`, so that equal blocks have equal text
        body = [_for_any_block(line, own, part.path) for line in part.lines]
        body = [line for line in body if not line.startswith("del ")]
        extra = [word for word in ("device",) if any(re.search(rf"\b{word}\b", line) for line in body)]
        uses = "block" if any(re.search(r"\bblock\b", line) for line in body) else ""
        parameters = [*([uses] if uses else []), *part.needs, *extra]
        returned = ", ".join(part.gives)
        key = _renamed(body, parameters, [*part.needs, *part.binds], returned)
        if key not in bodies:
            name = base = "run_" + re.sub(r"\W", "_", re.sub(r"\.\d+$", "", part.path))
            number = 1
            while name in taken:
                number += 1
                name = f"{base}_{number}"
            taken.add(name)
            bodies[key] = name
            results = {0: "None", 1: "Tensor"}.get(len(part.gives), f"tuple[{', '.join(['Tensor'] * len(part.gives))}]")
            kinds = {"block": "nn.Module", "device": "torch.device"}
            signature = ", ".join(["self", *(f"{word}: {kinds.get(word, 'Tensor')}" for word in parameters)])
            methods += ["", f"def {name}({signature}) -> {results}:"]
            if any("kernels." in line for line in body):
                methods.append("    kernels = load_kernels()")
            methods += [f"    {line}" if line else "" for line in body]
            if returned:
                methods.append(f"    return {returned}")
        arguments = ", ".join([*([own] if uses else []), *part.needs, *extra])
        call = f"self.{bodies[key]}({arguments})"
        forward.append(f"{returned} = {call}" if returned else call)
    return forward, methods


def _renamed(lines: list[str], parameters: Sequence[str], variables: Sequence[str], returned: str) -> tuple[str, ...]:
    """Returns the lines with variables numbered, so that blocks that differ only in the names of variables are equal."""
    current = {name: f"v{number}" for number, name in enumerate(parameters)}
    count = len(current)
    everything = sorted({*parameters, *variables}, key=len, reverse=True)
    # not attributes (`block.norm`), not keyword arguments (`dim=1`)
    pattern = re.compile(rf"(?<![.\w])({'|'.join(map(re.escape, everything))})\b(?!=)") if everything else re.compile(r"(?!)")

    def now(text: str) -> str:
        return pattern.sub(lambda match: current.get(match[1], match[1]), text)

    result = []
    for line in lines:
        left, equals, right = line.partition(" = ")
        if not equals or line.startswith("#"):
            result.append(line if line.startswith("#") else now(line))
            continue
        right = now(right)
        for name in left.rstrip(",").split(", "):
            if name != "_":
                current[name] = f"v{count}"
                count += 1
        result.append(f"{now(left)} = {right}")
    return (str(len(parameters)), *result, now(returned))


def _for_any_block(line: str, own: str, path: str) -> str:
    if line.startswith("#"):
        numberless = re.sub(r"\.\d+$", ".*", path)
        return re.sub(rf"^# {re.escape(path)}(?=[. ]|$)", f"# {numberless}", line)
    return re.sub(rf"{re.escape(own)}(?=[.\[])", "block", line)
