"""Shows a program to a model within a number of tokens: what matters for its task in full, the rest by name.

`model_new.py` comes whole if it takes no more than half of the tokens; else the bodies of functions and classes other than
those in ALWAYS are left out, and lines that repeat are folded. Kernels of the task's regions come next, whole, and those that
an engineer wrote, as far as they fit; kernels that serve other regions are one line each. The coder can read all files by a
look. It works on text only.

Where to look next: `engineers/prompt.py` (the sections), `compiler/printing/manifest.py` (which files serve which region).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.folding import fold_lines
from stitchcuda.engineers.tokens import TokenCounter, fit

LANGUAGES = {".py": "python", ".cu": "cuda", ".cuh": "cuda", ".cc": "cpp", ".cpp": "cpp", ".h": "cpp", ".json": "json"}
SHORT = 2  # lines of a function body that is always shown
ALWAYS = ("ModelNew", "load_kernels")  # shown whole: a task may have to change them
UNSEEN = ("program.json", "reference.py")  # not the coder's to write, or shown elsewhere


def file_block(path: str, text: str) -> str:
    """Returns a file as Markdown: a heading with its path, and a fenced block."""
    return f"### {path}\n```{LANGUAGES.get(Path(path).suffix, '')}\n{text.rstrip()}\n```"


def file_blocks(files: Mapping[str, str]) -> str:
    return "\n".join(file_block(path, text) for path, text in files.items())


def changed_files(program: Files, files: Files) -> dict[str, str]:
    """Returns the text files of a draft that differ from the program it started from; a removed one as "". Files in UNSEEN are
    left out."""
    found = {path: text for path, text in files.items() if isinstance(text, str) and program.get(path) != text}
    gone = {path: "" for path in program if path not in files}
    return {path: text for path, text in (found | gone).items() if path not in UNSEEN}


def program_text(
    files: Files,
    regions: Sequence[str] | None,
    tokens: int,
    counter: TokenCounter,
    *,
    about: str = "",
    replaced: Container[str] = (),
) -> str:
    """Returns the program in at most `tokens`: `model_new.py`, then other files, those that serve `regions` first. A file that
    does not fit gets one line, and so do kernels that serve other regions only, unless the text `about` names them. With
    `regions` None (an overview) all files but `model_new.py` do; without regions (a host task) none has to. Files in
    `replaced`, which a draft has changed, are left out."""
    if not files:
        return ""
    model = "" if "model_new.py" in replaced else files.get("model_new.py")
    parts = [file_block("model_new.py", model)] if model and isinstance(model, str) else []
    if isinstance(model, str) and sum(map(counter.count, parts)) > tokens // 2:
        model = fold_lines(fold_bodies(model))
        parts = [file_block("model_new.py", model)]
    left = tokens - sum(map(counter.count, parts))
    if left < tokens // 4 and parts and isinstance(model, str):  # a long one leaves a quarter of the tokens to kernels
        parts = [file_block("model_new.py", fit(model, tokens - tokens // 4, counter))]
        left = tokens - sum(map(counter.count, parts))
    order = [path for path in _by_relevance(files, regions or ()) if path not in replaced]
    named = {path: f"- {path}: {_one_line_on(path, files[path], files)}" for path in order}
    left -= counter.count("\n".join(named.values()))
    elsewhere = _serving_others(files, regions, about) if regions else set()
    whole = []
    for path in order if regions is not None else ():
        text = files[path]
        if path in elsewhere or not isinstance(text, str):
            continue
        if (cost := counter.count(file_block(path, text))) <= left:
            whole.append(file_block(path, text))
            left -= cost
            del named[path]
    if named:
        heading = "Other files:" if regions is None else "Other files, as `read FILE` shows them:"
        parts.append("\n".join([heading, *named.values()]))
    return "\n".join([*whole, *parts] if not model else [*parts[:1], *whole, *parts[1:]])


def _serving_others(files: Files, regions: Sequence[str], about: str) -> set[str]:
    """Returns the files of kernels that serve regions, but none of `regions`, and whose name is not in the text `about`."""
    manifest = _manifest(files)
    served: dict[str, set[str]] = {}
    for region in manifest.get("regions") or []:
        served.setdefault(region.get("kernel"), set()).add(region.get("id"))
    others = {name for name, ids in served.items() if ids.isdisjoint(regions) and not (name and name in about)}
    kernels = [kernel for kernel in manifest.get("kernels") or [] if kernel.get("name") in others]
    return {path for kernel in kernels for path in kernel.get("files", ())}


def list_files(files: Files, but: Container[str]) -> list[str]:
    """Returns a line for each file that a coder may write, except those in `but`."""
    shown = (path for path in files if path not in UNSEEN and path not in but)
    return [f"{path}: {_one_line_on(path, files[path], files)}" for path in shown]


def fold_bodies(source: str) -> str:
    """Returns Python source without the bodies of functions and classes, except short ones and those in ALWAYS."""
    try:
        tree = parse_module(source)
    except SyntaxError:
        return source
    lines = source.splitlines()
    for node in reversed(tree.body):
        if not isinstance(node, ast.FunctionDef | ast.ClassDef) or node.name in ALWAYS or not node.end_lineno:
            continue
        first = node.body[0]
        documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        start = first.end_lineno if documented and first.end_lineno else first.lineno - 1
        if node.end_lineno - start <= SHORT:
            continue
        indent = " " * node.body[0].col_offset
        lines[start : node.end_lineno] = [f"{indent}...  # ({node.end_lineno - start} lines, not shown)"]
    return "\n".join(lines)


def _by_relevance(files: Files, regions: Sequence[str]) -> list[str]:
    """Returns the other files: those that serve `regions` first, kernels before their bindings."""
    manifest = _manifest(files)
    names = {region.get("kernel") for region in manifest.get("regions") or [] if region.get("id") in regions}
    kernels = [kernel for kernel in manifest.get("kernels") or [] if kernel.get("name") in names]
    serving = {path for kernel in kernels for path in kernel.get("files", ())}
    rest = [path for path in files if path not in ("model_new.py", *UNSEEN)]
    return sorted(rest, key=lambda path: (path not in serving, path.endswith("_binding.cc"), path))


def _one_line_on(path: str, text: str | bytes, files: Files) -> str:
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
