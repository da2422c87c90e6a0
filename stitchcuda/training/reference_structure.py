"""Says which references are alike: equal syntax without names and numbers, or syntax that overlaps by 0.9.

Splits of a data set are made of these clusters, and leaks are found by them: KernelBench's 250 problems have 230 structures.
Where to look next: `training/leakage.py` (looks for a test reference in texts), `training/data.py` (splits).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from stitchcuda.compiler.syntax import parse_module

OVERLAP = 0.9                              # of the shingles of both: CUDA Agent's limit
SHINGLE = 5                                # neighbouring nodes in one
_INPUTS = ("get_inputs", "get_init_inputs")


@dataclass(frozen=True)
class ReferenceStructure:
    """The structure of a reference's classes and functions, without those that make its inputs."""

    digest: str
    shingles: frozenset[tuple[str, ...]]

    def alike(self, other: ReferenceStructure) -> bool:
        if self.digest == other.digest:
            return True
        both = len(self.shingles & other.shingles)
        return both >= OVERLAP * (len(self.shingles) + len(other.shingles) - both) > 0


def structure_of(source: str) -> ReferenceStructure | None:
    """Returns the structure of Python source; None if it cannot be parsed or defines nothing."""
    try:
        nodes = [
            name
            for statement in parse_module(source).body
            if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name not in _INPUTS
            for name in _names(statement)
        ]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not nodes:
        return None
    shingles = frozenset(tuple(nodes[at : at + SHINGLE]) for at in range(max(1, len(nodes) - SHINGLE + 1)))
    return ReferenceStructure(hashlib.sha256(" ".join(nodes).encode()).hexdigest(), shingles)


def _names(node: ast.AST) -> list[str]:
    """The tree in preorder: kinds of nodes, and attributes, which name torch's operators. Attributes of `self` are names."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return []                          # a docstring
    found = [type(node).__name__]
    if isinstance(node, ast.Constant):
        return ["Constant"]
    if isinstance(node, ast.Attribute) and not (isinstance(node.value, ast.Name) and node.value.id == "self"):
        found.append(node.attr)
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            found += _names(child)
    return found


def clusters(sources: Mapping[str, str]) -> dict[str, str]:
    """Returns the cluster of each source, by its name: the least digest of those that are alike, directly or through others.
    Sources without a structure are clustered by their text."""
    known = {name: structure_of(source) for name, source in sources.items()}
    leader = {name: name for name in sources}

    def lead(name: str) -> str:
        while leader[name] != name:
            name = leader[name]
        return name

    names = sorted(sources)
    for number, name in enumerate(names):
        for other in names[:number]:
            first, second = known[name], known[other]
            alike = sources[name] == sources[other] if first is None or second is None else first.alike(second)
            if alike:
                leader[lead(name)] = lead(other)
    digests: dict[str, list[str]] = {}
    for name in names:
        found = known[name]
        digest = found.digest if found else hashlib.sha256(sources[name].encode()).hexdigest()
        digests.setdefault(lead(name), []).append(digest)
    return {name: min(digests[lead(name)])[:16] for name in names}
