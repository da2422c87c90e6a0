"""Finds what a draft's files name and no file of it has: kernels of program.json and of model_new.py, includes, launchers.

Read from the text alone, so it may be wrong: the model is asked about it once, and what it answers then is built. It finds no
error inside of a file.

Where to look next: `engineers/draft_in_progress.py` (asks), `tools/build/nvcc.py` (builds what is handed in).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from stitchcuda.compiler.syntax import parse_module
from stitchcuda.engineers.loose_json import json_object

SOURCES = (".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp")
BUILT = (".cu", ".cuh", ".cc", ".cpp")
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_DECLARED = re.compile(r'extern[ \t]+"C"[^;{}()=]*?\b(\w+)[ \t\n]*\([^;{}]*\)[ \t\n]*;')


def find_missing(files: Mapping[str, str | bytes], before: Mapping[str, str | bytes], manifest: str = "") -> tuple[str, ...]:
    """Returns a sentence for each name without a file. What the program `before` lacked as well is left out; `manifest` is the
    program.json that the model wrote, "" for none."""
    known = set(_lacking(before))
    found = [*_listed(manifest, files), *(text for text in _lacking(files) if text not in known)]
    found += [
        f"{path} includes {name!r}, which the draft removes" for path, name in _includes(files)
        if _names(before, name) and not _names(files, name)
    ]  # fmt: skip
    return tuple(dict.fromkeys(found))


def _listed(manifest: str, files: Mapping[str, str | bytes]) -> Iterator[str]:
    if not manifest.strip():
        return
    try:
        content = json_object(manifest)
    except ValueError as error:
        yield f"program.json cannot be read ({error}): leave it out, it is written for you"
        return
    kernels = content.get("kernels")
    for kernel in kernels if isinstance(kernels, list) else []:
        named = kernel.get("files") if isinstance(kernel, dict) else None
        for path in named if isinstance(named, list) else []:
            if isinstance(path, str) and path.removeprefix("./") not in files:
                yield f"program.json lists {path}, which is not in the draft"


def _lacking(files: Mapping[str, str | bytes]) -> Iterator[str]:
    for name in _named_by_model(files):
        if not _names(files, name):
            yield f"model_new.py names {name}, which is not in the draft"
    for path, name in _includes(files):
        if name.endswith((".cu", ".cuh")) and "/" not in name and not _names(files, name):
            yield f"{path} includes {name!r}, which is not in the draft"
    texts = {path: text for path, text in files.items() if isinstance(text, str) and path.endswith(SOURCES)}
    everything = "\n".join(texts.values())
    if "##" in everything:                 # functions may be defined by a macro
        return
    for path, text in texts.items():
        for function in dict.fromkeys(_DECLARED.findall(text)) if path.endswith((".cc", ".cpp")) else ():
            if not re.search(rf"\b{function}[ \t\n]*\([^;{{}}]*\)[^;{{}}()]*\{{", everything):
                yield f"{path} declares {function}(), which no file of the draft defines"


def _named_by_model(files: Mapping[str, str | bytes]) -> Iterator[str]:
    """Yields the source files that model_new.py names: in strings, and in the table KERNELS of a printed program."""
    text = files.get("model_new.py")
    try:
        tree = parse_module(text) if isinstance(text, str) else ast.Module([], [])
    except SyntaxError:
        return                             # the build says so, with its line
    pieces = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.BinOp) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            pieces.discard(id(node.right))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            path = PurePosixPath(node.value)
            if path.suffix in BUILT and not re.search(r"[\s*{}%]", node.value) and not path.stem.startswith(("_", ".")):
                yield node.value
    if isinstance(text, str) and "_binding.cc" in text and "cuda_files" in text:
        for node in tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Name) and target.id == "KERNELS":
                rows = node.value.elts if isinstance(node.value, ast.Tuple | ast.List) else []
                heads = [row.elts[0] for row in rows if isinstance(row, ast.Tuple | ast.List) and row.elts]
                names = [head.value for head in heads if isinstance(head, ast.Constant) and isinstance(head.value, str)]
                yield from (f"{name}.cu" for name in names if not _names(files, f"{name}_binding.cc"))


def _includes(files: Mapping[str, str | bytes]) -> Iterator[tuple[str, str]]:
    for path, text in files.items():
        if isinstance(text, str) and path.endswith(SOURCES):
            yield from ((path, name) for name in _INCLUDE.findall(text))


def _names(files: Mapping[str, str | bytes], name: str) -> bool:
    wanted = PurePosixPath(name).name
    return any(PurePosixPath(path).name == wanted for path in files)
