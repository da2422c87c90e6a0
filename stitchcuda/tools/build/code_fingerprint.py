"""A fingerprint of what a program does: two programs that have the same one need not both be checked and timed.

It is made of the machine code of all kernels (`tools/build/cubins.py`), the host's part of the sources
(`tools/build/host_code.py`), Python by its syntax without docstrings, comments and annotations, and other files byte by byte.
Kernels count under the code that they have, not under their names. Where machine code cannot be read (compressed, or PTX for a
newer GPU), or where it is not all that the program builds (compiler options of its own, sources that it writes itself), sources
count as they are but for comments and white space. It errs on one side: programs that do the same may differ, those that differ
in what they do must not be alike, but for what they say of their own lines or read of their own sources. Where to look next:
`tools/build/nvcc.py` (who asks).
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.compiler.syntax import parsed
from stitchcuda.tools.build import host_code
from stitchcuda.tools.build.cubins import Cubin, cubins

_DIGITS = 32
_SKIPPED = {"__pycache__", ".git", ".venv", ".stitchcuda"}
_DESCRIBES = ("kernels", "name")           # of program.json: nobody acts on what it says there
_HARMLESS = ("-lineinfo", "--generate-line-info", "-O3")
# With these a program may build what is in none of its files, or something else than what is in them.
_MAKES_CODE = frozenset((
    "load_inline", "build_inline", "nvrtc", "RawModule", "RawKernel", "embed_cubin", "write_text", "write_bytes", "open",
    "NamedTemporaryFile", "TemporaryDirectory", "mkstemp", "mkdtemp", "copyfile", "subprocess", "system", "exec", "eval",
))  # fmt: skip
_READS_ITSELF = frozenset((
    "__doc__", "__annotations__", "get_type_hints", "get_annotations", "signature", "inspect", "jit", "custom_op",
    "infer_schema", "dataclass", "dataclasses", "getdoc",
))  # fmt: skip


def fingerprint(program: Path, binaries: Iterable[Path]) -> str:
    """32 hexadecimal digits for a program's folder and all that nvcc made of its sources: cubins, objects or libraries, in the
    order of the sources. "" where a file of the program cannot be read, or is none of its own.
    """
    try:
        paths = _paths(program)
        if any(path.is_symlink() for path in paths):
            return ""
        files = {str(path.relative_to(program)): path.read_bytes() for path in paths if path.is_file()}
        read = [cubins(binary) for binary in binaries]
    except OSError:
        return ""
    python = {name: data.decode("utf-8", "surrogateescape") for name, data in files.items() if name.endswith(".py")}
    sources = {
        name: data.decode("utf-8", "surrogateescape") for name, data in files.items() if name.endswith(host_code.SUFFIXES)
    }
    trees = {name: _tree(text) for name, text in python.items()}
    words = {word for tree in trees.values() if tree is not None for word in _words(tree)}
    units = [unit for one in read for unit in one or ()]
    speaks = None not in read and not words & _MAKES_CODE and all(map(_harmless, words)) and None not in trees.values()
    said = hashlib.sha256()

    def say(*parts: str | bytes) -> None:
        for part in parts:
            data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
            said.update(b"%d:" % len(data) + data)

    codes = _codes(units) if speaks else {}
    found = host_code.tokens(sources, kernels=_typed(units) if speaks else None)
    names = _Names(codes)
    for name in sorted(found):
        say("source", name, str(len(found[name])), *map(names, found[name]))
    for unit in units if speaks else ():
        say("device", unit.rest, *sorted(function.digest for function in unit.functions))
    for name, tree in sorted(trees.items()):
        say("python", name, _syntax(tree, python[name], whole=bool(words & _READS_ITSELF)))
    for name in sorted(set(files) - set(python) - set(sources)):
        silent = name == "program.json" and "program.json" not in words
        say("file", name, _manifest(files[name]) if silent else files[name])
    return said.hexdigest()[:_DIGITS]


def _paths(program: Path) -> list[Path]:
    """Everything in the program's folder that is no tool's."""
    found = sorted(program.rglob("*"))
    return [path for path in found if path.suffix != ".pyc" and not _SKIPPED & set(path.relative_to(program).parts)]


# ---- device ---------------------------------------------------------------------------------------------------------


def _codes(units: Sequence[Cubin]) -> dict[str, str]:
    """What each kernel's name stands for: the code of all kernels of that name, by translation unit."""
    found: dict[str, list[str]] = defaultdict(list)
    for number, unit in enumerate(units):
        for function in unit.functions:
            if function.name:
                found[function.name].append(f"{number} {function.digest}")
    return {name: " ".join(sorted(lines)) for name, lines in found.items()}


def _typed(units: Sequence[Cubin]) -> set[str]:
    """Kernels whose full names always say their parameters' types."""
    named = [function for unit in units for function in unit.functions if function.name]
    return {one.name for one in named} - {one.name for one in named if not one.mangled}


class _Names:
    """Tokens with kernels' names replaced by their code. Kernels of the same code are told apart by which is named first, so
    that no two names become one."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        self._codes = codes
        self._known: dict[str, str] = {}
        self._count: dict[str, int] = defaultdict(int)

    def __call__(self, token: str) -> str:
        if token not in self._codes:
            return token
        if token not in self._known:
            code = self._codes[token]
            self._known[token] = f"kernel {code} {self._count[code]}"
            self._count[code] += 1
        return self._known[token]


# ---- Python ---------------------------------------------------------------------------------------------------------


def _tree(text: str) -> ast.Module | None:
    try:
        return parsed(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _words(tree: ast.AST) -> Iterable[str]:
    """Every name, attribute, keyword, imported name and string."""
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "value", "module"):
            word = getattr(node, field, None)
            if isinstance(word, str) and (field, word) != ("attr", "eval"):      # a mode of modules
                yield word
        if isinstance(node, ast.alias):
            yield from node.name.split(".")


def _harmless(word: str) -> bool:
    """Whether it is no compiler option, or the beginning of one, that changes what is built."""
    return not re.match(r"-+(?:[A-Za-z]|\Z)", word) or word in _HARMLESS


def _syntax(tree: ast.Module | None, text: str, *, whole: bool) -> str:
    """The tree written down; the text itself where there is none, or too deep a one. `whole`: with docstrings and annotations,
    for a program that reads them."""
    try:
        return text if tree is None else ast.dump(tree if whole else _Bare().visit(tree))
    except RecursionError:
        return text


class _Bare(ast.NodeTransformer):
    """Without docstrings, and without annotations that nobody evaluates: a decorator or a class may make something of them."""

    def __init__(self) -> None:
        self._inside = 0

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._without_docstring(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        outside, self._inside = self._inside, 0
        self._without_docstring(node)
        self._inside = outside
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._function(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if self._inside:
            node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        if not node.decorator_list:
            node.returns = None
            arguments = node.args
            for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
                if one is not None:
                    one.annotation = None
        self._inside += 1
        self._without_docstring(node)
        self._inside -= 1
        return node

    def _without_docstring(self, node: Any) -> ast.AST:
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            node.body = node.body[1:] or [ast.Pass()]
        self.generic_visit(node)
        return node  # type: ignore[no-any-return]


def _manifest(data: bytes) -> bytes:
    """program.json without what only describes."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return data
    if isinstance(content, dict):
        content = {name: value for name, value in content.items() if name not in _DESCRIBES}
    return json.dumps(content, sort_keys=True).encode()
