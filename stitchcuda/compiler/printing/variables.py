"""Names the values of a program readably: a submodule's result takes its name, `added` is a sum.

A name is bound again once nothing reads its value any more, which frees memory as early as eager does. Names depend on the
graph and the order of statements only, so the same program is always printed the same way.

Where to look next: `compiler/printing/statement_order.py` (the order), `compiler/printing/forward_body.py` (the statements).
"""

from __future__ import annotations

import builtins
import keyword
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from stitchcuda.compiler.capture.dependencies import base_name, reads, references, writes
from stitchcuda.compiler.capture.op_graph import Node, OpGraph
from stitchcuda.compiler.printing.statement_order import KernelCall, Unit

_NAMES = {
    "add": "added", "sub": "difference", "mul": "product", "div": "quotient", "pow": "power", "sum": "total",
    "matmul": "product",
    "bmm": "product", "mm": "product", "scaled_dot_product_attention": "attention", "layer_norm": "norm", "cat": "joined",
    "index": "picked", "max": "largest", "min": "smallest", "abs": "magnitude", "all": "all_true", "any": "any_true",
    "slice": "part", "select": "part", "round": "rounded", "neg": "negated", "rsub": "difference", "to": "converted",
    "clone": "copied", "contiguous": "compact", "conv1d": "conv", "conv2d": "conv", "conv3d": "conv", "where": "chosen",
    "lift_fresh_copy": "constant", "_to_copy": "converted",
}  # fmt: skip
_RESHAPES = frozenset(
    {"view", "reshape", "permute", "transpose", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "contiguous", "t"}
)
_RESERVED = {"self", "torch", "nn", "F", "device", "kernels", "part_of", "math", "json", *keyword.kwlist, *dir(builtins)}
_FOREVER = math.inf


def variable(text: str) -> str:
    """Returns `text` as a Python name that is no keyword, builtin or name that programs use."""
    name = re.sub(r"\W", "_", text).strip("_").lower() or "value"
    name = f"v{name}" if name[0].isdigit() else name
    return f"{name}_" if name in _RESERVED else name


def state_expression(key: str, keys: Sequence[str]) -> str:
    """Returns the expression of a state tensor: `blocks.0.norm.weight` becomes `self.blocks[0].norm.weight`.

    A numbered child of a module that has other children too is an attribute: `getattr(self.blocks, "0")`.
    """
    path, _, name = key.rpartition(".")
    text, walked = "self", ""
    for part in path.split(".") if path else ():
        prefix = f"{walked}." if walked else ""
        siblings = {other.removeprefix(prefix) for other in keys if other.startswith(prefix)}
        numbered = bool(prefix) and all("." in rest and rest.split(".")[0].isdigit() for rest in siblings)
        if part.isdigit() and numbered:
            text += f"[{part}]"
        elif part.isidentifier() and not keyword.iskeyword(part):
            text += f".{part}"
        else:
            text = f'getattr({text}, "{part}")'
        walked = f"{prefix}{part}"
    if name.isidentifier() and not keyword.iskeyword(name):
        return f"{text}.{name}"
    return f'getattr({text}, "{name}")'


class Variables:
    """Names for the values of scheduled units. `name_results` must be called once per unit, in order."""

    def __init__(self, graph: OpGraph, units: Sequence[Unit], arguments: Mapping[str, str]) -> None:
        keys = [key for entry in graph.state for key in (entry.key, *entry.tied)]
        self.text: dict[str, str] = {entry.spec.name: state_expression(entry.key, keys) for entry in graph.state}
        self.text |= arguments
        self.outputs = set(references(graph.outputs))
        self.last = self._last_uses(units)
        self._scopes = Counter(node.scope for node in graph.nodes)
        self._busy: dict[str, float] = {name: self.last.get(value, -1) for value, name in arguments.items()}
        self._owner = {name: value for value, name in arguments.items()}

    def reserve(self, names: Iterable[str]) -> None:
        """Marks names as bound until the end, so that no value takes them."""
        self._busy |= dict.fromkeys(names, _FOREVER)

    def _last_uses(self, units: Sequence[Unit]) -> dict[str, float]:
        last: dict[str, float] = dict.fromkeys(self.outputs, _FOREVER)
        for position, unit in reversed(list(enumerate(units))):
            if isinstance(unit, Node):
                if in_place(unit):  # the result is the argument itself
                    own = writes(unit)[0]
                    last[own] = max(last.get(own, position), last.get(unit.outputs[0].name, position))
                taken = reads(unit)
            else:
                taken = unit.values
            for value in taken:
                last[value] = max(last.get(value, position), position)
        return last

    def name_results(self, position: int, unit: Unit) -> list[str]:
        """Names the results of the unit at `position`; returns the names that it binds, `_` for results that are not used."""
        if isinstance(unit, KernelCall):
            producer = {output.name: node for node in unit.covered for output in node.outputs}
            bound = unit.of_role("out")
            return [self._bind(value, self._base(producer[value], position - 1), position, position - 1) for value in bound]
        if in_place(unit):
            self.text[unit.outputs[0].name] = self.text[writes(unit)[0]]
            return []
        names = []
        base = self._base(unit, position)
        for index, output in enumerate(unit.outputs):
            if output.name not in self.last:
                names.append("_")
                continue
            suggestion = base if len(unit.outputs) == 1 else f"{base}_{index}"
            names.append(self._bind(output.name, suggestion, position, position))
        return names

    def dead_names(self, position: int) -> list[tuple[str, str]]:
        """Returns (name, value) of each bound name whose value no unit after this position reads."""
        return [(name, self._owner[name]) for name, last in self._busy.items() if last <= position and name in self._owner]

    def _base(self, node: Node, free_until: int) -> str:
        source = reads(node)
        if base_name(node.op) in _RESHAPES and source and re.fullmatch(r"[a-z]\w*", self.text.get(source[0], "")):
            own = self.text[source[0]]
            return own if self._busy.get(own, -1) <= free_until else re.sub(r"_\d+$", "", own)
        leaf = node.scope.rpartition(".")[2]
        if self._scopes[node.scope] <= 2 and leaf and node.scope:
            return variable("_".join(node.scope.split(".")[-2:]) if leaf.isdigit() else leaf)
        return variable(_NAMES.get(base_name(node.op), base_name(node.op)))

    def _bind(self, value: str, base: str, position: int, free_until: int) -> str:
        number, name = 1, base
        while name in self._busy and self._busy[name] > free_until:
            number += 1
            name = f"{base}_{number}"
        self._busy[name] = self.last.get(value, position)
        self._owner[name] = value
        self.text[value] = name
        return name


def in_place(node: Node) -> bool:
    """Whether the node returns the tensor that it writes (`add_`). BatchNorm, which writes its statistics, does not."""
    written = writes(node)
    return bool(written) and len(node.outputs) == 1 and node.aliases == written[0] and base_name(node.op).endswith("_")
