"""A program as a model is shown it: what matters for its task in full, the rest by name.

Generated programs are long and mostly the same. `model_new.py` keeps its classes and tables and has the bodies of fixed
functions left out; kernels of the task's regions come whole, other files as a line. All can be read by a look. Text only.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.tokens import TokenCounter, fit

LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".cc": "cpp", ".cpp": "cpp", ".h": "cpp", ".json": "json"}
SHORT = 2  # lines of a function that is shown whole
ALWAYS = ("ModelNew", "load_kernels")
UNSEEN = ("program.json", "reference.py")  # kept for the coder, or shown elsewhere


def language(path: str) -> str:
    return LANGUAGES.get(Path(path).suffix, "")


def changed(program: Files, files: Files) -> dict[str, str]:
    """The text files of a draft that differ from the program it started from; a removed one as an empty text."""
    found = {path: text for path, text in files.items() if isinstance(text, str) and program.get(path) != text}
    gone = {path: "" for path in program if path not in files}
    return {path: text for path, text in (found | gone).items() if path not in UNSEEN}


def program_text(files: Files, regions: Sequence[str] | None, tokens: int, counter: TokenCounter) -> str:
    """The program in at most `tokens`: `model_new.py`, whole if it takes no more than half of them, then other files, those
    that serve `regions` first. What does not fit gets a line. For an overview (`regions` None) all other files are lines."""
    if not files:
        return ""
    model = files.get("model_new.py")
    parts = [_block("model_new.py", model)] if isinstance(model, str) else []
    if isinstance(model, str) and counter.count(parts[0]) > tokens // 2:
        parts = [_block("model_new.py", folded(model))]
    left = tokens - sum(map(counter.count, parts))
    if left < tokens // 4 and parts and isinstance(model, str):  # a long one leaves a quarter to kernels
        parts = [_block("model_new.py", fit(folded(model), tokens - tokens // 4, counter))]
        left = tokens - sum(map(counter.count, parts))
    named = {path: f"- {path}: {_about(path, files[path], files)}" for path in _by_relevance(files, regions or ())}
    left -= counter.count("\n".join(named.values()))
    whole = []
    for path in list(named) if regions is not None else ():
        text = files[path]
        if isinstance(text, str) and (cost := counter.count(_block(path, text))) <= left:
            whole.append(_block(path, text))
            left -= cost
            del named[path]
    if named:
        parts.append("\n".join(["Other files, as `read FILE` shows them:", *named.values()]))
    return "\n".join([*parts[:1], *whole, *parts[1:]])


def folded(source: str) -> str:
    """Python with the bodies of longer functions and classes left out, but those that a task may have to change."""
    try:
        tree = parse_module(source)
    except SyntaxError:
        return source
    lines = source.splitlines()
    for node in reversed(tree.body):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name in ALWAYS or not node.end_lineno:
            continue
        first = node.body[0]
        said = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and first.end_lineno
        start = first.end_lineno if said and first.end_lineno else node.body[0].lineno - 1
        if node.end_lineno - start <= SHORT:
            continue
        indent = " " * node.body[0].col_offset
        lines[start : node.end_lineno] = [f"{indent}...  # ({node.end_lineno - start} lines, not shown)"]
    return "\n".join(lines)


def _block(path: str, text: str) -> str:
    return f"### {path}\n```{language(path)}\n{text.rstrip()}\n```"


def _by_relevance(files: Files, regions: Sequence[str]) -> list[str]:
    """Kernels before their bindings, those of the task first."""
    rest = [path for path in files if path not in ("model_new.py", *UNSEEN)]
    return sorted(rest, key=lambda path: (not _serves(path, files, regions), path.endswith("_binding.cc"), path))


def _serves(path: str, files: Files, regions: Sequence[str]) -> bool:
    kernels = _manifest(files).get("kernels") or []
    names = {region.get("kernel") for region in _manifest(files).get("regions") or [] if region.get("id") in regions}
    return any(path in kernel.get("files", ()) for kernel in kernels if kernel.get("name") in names)


def _about(path: str, text: str | bytes, files: Files) -> str:
    if not isinstance(text, str):
        return f"binary, {len(text)} bytes; it stays"
    kernel = next((kernel for kernel in _manifest(files).get("kernels") or [] if path in kernel.get("files", ())), None)
    strategy = f"; {kernel['strategy']}" if kernel and path.endswith(".cu") and kernel.get("strategy") else ""
    return f"{counted(len(text.splitlines()), 'line')}{strategy}"


def _manifest(files: Files) -> Mapping[str, Any]:
    try:
        found = json.loads(files.get("program.json", "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
