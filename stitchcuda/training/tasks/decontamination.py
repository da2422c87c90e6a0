"""Keeps tasks apart from benchmarks by structure: equal syntax without names, text and numbers, or shingles that overlap.

What is compared is the program: classes and functions without the two that make inputs. Names bound to modules are written out
(`nn.Linear` is `torch.nn.Linear`); other names, attributes of `self`, docstrings and numbers are dropped. A shingle is five
neighbouring tokens of the tree in preorder. KernelBench's 250 problems are shipped as digests only
(`scripts/held_out_digests.py` makes them from a checkout); `--held-out` adds files.
Where to look next: `training/tasks/filters.py` (asks), `training/tasks/synthesis.py` (leaves out duplicates by `digest`).
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.errors import BadInput

LENGTH, OVERLAP = 5, 0.9                   # tokens in a shingle; Jaccard index from which two programs count as the same
SHIPPED = "kernelbench.json.gz"
_INPUTS = {"get_inputs", "get_init_inputs"}


@dataclass(frozen=True)
class ProgramStructure:
    """A program's structure. `digest` is equal for equal syntax; `shingles` are 32-bit hashes."""

    name: str
    digest: str
    shingles: frozenset[int]

    def overlap(self, other: ProgramStructure) -> float:
        """Returns the Jaccard index of the shingles."""
        common = len(self.shingles & other.shingles)
        return common / max(len(self.shingles) + len(other.shingles) - common, 1)


@dataclass(frozen=True)
class HeldOut:
    """Programs that no task may be like."""

    programs: tuple[ProgramStructure, ...]

    @cached_property
    def digests(self) -> dict[str, str]:
        return {program.digest: program.name for program in self.programs}

    def nearest(self, task: ProgramStructure) -> tuple[str, float]:
        """Returns the program that the task is most like, and how much: 1.0 for equal structure."""
        if task.digest in self.digests:
            return self.digests[task.digest], 1.0
        overlaps = ((program.name, task.overlap(program)) for program in self.programs)
        return max(overlaps, key=lambda pair: pair[1], default=("", 0.0))


def structure_of(source: str, name: str = "") -> ProgramStructure:
    """Returns a program's structure. Raises SyntaxError for what is no Python."""
    tree = parse_module(source)
    kept = [
        node for node in tree.body
        if isinstance(node, ast.ClassDef) or (isinstance(node, ast.FunctionDef) and node.name not in _INPUTS)
    ]  # fmt: skip
    modules = dict(_imports(tree))
    tokens = [token for node in kept for token in _tokens(node, modules)]
    spans = (tokens[start : start + LENGTH] for start in range(max(len(tokens) - LENGTH + 1, 1)))
    return ProgramStructure(
        name, hashlib.sha256("\n".join(tokens).encode()).hexdigest()[:16],
        frozenset(int.from_bytes(hashlib.blake2b("\n".join(span).encode(), digest_size=4).digest()) for span in spans),
    )  # fmt: skip


def read_held_out(places: Sequence[Path], *, shipped: bool = True) -> HeldOut:
    """Returns the shipped structures and those of the Python files at `places`: files, or folders with all below them."""
    found = [*_shipped()] if shipped else []
    for place in places:
        files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
        if not place.exists() or not files:
            why = "there is no Python file: give a file, or a folder such as a copy of KernelBench"
            raise BadInput(f"--held-out {place}: {why}")
        for file in files:
            try:
                found.append(structure_of(file.read_text(encoding="utf-8"), file.stem))
            except (OSError, UnicodeDecodeError, SyntaxError, ValueError) as error:
                raise BadInput(f"--held-out {file} cannot be read as Python ({error}): remove it from the folder") from error
    return HeldOut(tuple(found))


def pack(programs: Iterable[ProgramStructure]) -> bytes:
    """Returns the bytes of a file of digests, equal for equal programs."""
    rows = [[program.name, program.digest, sorted(program.shingles)] for program in programs]
    return gzip.compress(json.dumps(rows, separators=(",", ":")).encode(), mtime=0)


def _shipped() -> Iterator[ProgramStructure]:
    data = resources.files("stitchcuda.training.tasks").joinpath(SHIPPED).read_bytes()
    for name, digest, shingles in json.loads(gzip.decompress(data)):
        yield ProgramStructure(name, digest, frozenset(shingles))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.asname, alias.name) if alias.asname else (alias.name.split(".")[0], alias.name.split(".")[0])
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module or ''}.{alias.name}"


def _tokens(node: ast.AST, modules: dict[str, str]) -> Iterator[str]:
    match node:
        case ast.Attribute() | ast.Name() if dotted := _dotted(node, modules):
            yield dotted
            return
        case ast.Attribute(value=ast.Name(id="self")):
            yield "self"
            return
        case ast.Constant(value=bool() | None | str() | bytes() as value):
            yield repr(value)
        case ast.Constant():
            yield "number"
        case ast.Attribute(attr=attr):
            yield f".{attr}"
        case ast.keyword(arg=arg):
            yield f"{arg}="
        case ast.Expr(value=ast.Constant(value=str())):  # a docstring
            return
        case ast.Load() | ast.Store() | ast.Del():
            return
        case _:
            yield type(node).__name__
    annotations = {id(item) for item in (getattr(node, "annotation", None), getattr(node, "returns", None)) if item}
    for child in ast.iter_child_nodes(node):
        if id(child) not in annotations:
            yield from _tokens(child, modules)


def _dotted(node: ast.AST, modules: dict[str, str]) -> str:
    """Returns the full name of what belongs to an imported module; "" for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in modules:
        return ""
    return ".".join([modules[node.id], *reversed(parts)])
