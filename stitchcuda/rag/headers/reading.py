"""Reads all headers into entries, one for each declaration, with the comment in plain words.

It reads text and keeps nothing; what is not public (details, private parts) is left out. Where to look next:
`rag/headers/declarations.py` and `rag/headers/comments.py`, which read one header; `rag/headers/chunks.py`, which puts entries
together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stitchcuda.rag.headers import comments, declarations
from stitchcuda.rag.headers.declared_names import Kind

_MACROS = ("cuda/std/", "cub/detail/")        # only their macros count, which other headers use
_NAMESPACES = (
    ("cooperative_groups", "cooperative_groups"), ("cub/", "cub"), ("cuda/__ptx/", "cuda::ptx"),
    ("cuda/__warp/", "cuda::device"), ("cuda/", "cuda"), ("thrust/", "thrust"), ("cutlass/", "cutlass"), ("cute/", "cute"),
    ("cudnn_frontend", "cudnn_frontend"), ("cuda_awbarrier.h", "nvcuda::experimental"),
    ("cuda_pipeline.h", "nvcuda::experimental"),
)  # fmt: skip
_PTX = "cuda/__ptx/instructions/generated/"                # what they declare stands, readable, in comments

_PTX_WRAPPER = re.compile(r"^/\*\n(?P<said>//.*?)(?P<code>(?:template\s*<|^__device__).*?)\*/", re.DOTALL | re.MULTILINE)
_DEFAULT = re.compile(r"\s*\b__dv\(([^()]*)\)")            # cuda_runtime_api.h's default arguments
_ATTRIBUTE = re.compile(r"(?:__attribute__|__declspec)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]")
_TILE = re.compile(r"^cooperative_groups::__\w*tile\w*")         # what a tile inherits
_HEADLINE = re.compile(r"(?:\d+\. )?\w+(?:\(\))?\.?")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_TELLING = ("__host__", "__device__", "__global__")
_DROPPED = {
    "extern", "static", "inline", "__inline__", "__inline", "__forceinline__", "__forceinline", "__cudart_builtin__", "__cdecl",
    "__device_builtin__", "__stdcall", "__THROW", "__CRTDECL", "CUDARTAPI", "__STORAGE__", "__CUDA_MATH_CRTIMP",
    "_LIBCUDACXX_HIDE_FROM_ABI", "_CCCL_HIDE_FROM_ABI", "_CCCL_NODISCARD",
}  # fmt: skip


_DEPRECATED = re.compile(r"\s+\w*DEPRECATED\w*(?:\([^()]*\))?")       # of a value


class Entry(NamedTuple):
    """One declaration; overloads are entries of their own."""

    name: str
    inside: str                            # namespaces and types, joined with ::
    header: str                            # as an include names it
    kind: Kind
    text: str
    brief: str
    comment: str                           # the brief first
    also: tuple[str, ...] = ()             # further names, such as a type's tag

    @property
    def full(self) -> str:
        return f"{self.inside}::{self.name}" if self.inside else self.name


def read(headers: Mapping[str, Path], unread: list[str]) -> tuple[Entry, ...]:
    """Returns every public declaration of these headers, in order. Headers that cannot be read are added to `unread`."""
    found: dict[Entry, None] = {}
    macros: dict[str, list[tuple[str, str]]] = {}
    for name, path in headers.items():
        try:
            source = path.read_text("utf-8", "replace")
        except OSError as error:
            unread.append(f"{name} ({error.strerror or error})")
            continue
        if name.startswith(_PTX):
            source = "\n".join(_wrapper(found) for found in _PTX_WRAPPER.finditer(source))
        header = declarations.read(source)
        macros[name] = header.macros
        if not name.startswith(_MACROS):
            found.update(dict.fromkeys(_entries(header.declarations, name)))
    anywhere = _qualifiers([macro for each in macros.values() for macro in each], {})
    words = {name: _qualifiers(each, anywhere) for name, each in macros.items()}
    return tuple({entry._replace(text=_readable(entry.text, words[entry.header])): None for entry in found})


def _entries(declared: Iterable[declarations.Declaration], header: str) -> Iterator[Entry]:
    around = next((space for start, space in _NAMESPACES if header.startswith(start)), "")
    for declaration in declared:
        inside = declaration.inside
        if around:                         # their macros only open namespaces, and names with _ are internal
            if declaration.kind == "macro" or declaration.name.startswith("_"):
                continue
            if not f"{inside}::".startswith(f"{around}::"):
                inside = f"{around}::{inside}" if inside else around
        else:                              # where QNX has C's functions
            inside = re.sub(r"^std(?:::|$)", "", inside)
        inside = _TILE.sub("cooperative_groups::thread_block_tile", inside)
        if declaration.name.strip("_") not in ("", "func"):
            said = comments.plain(declaration.comment) if declaration.comment else comments.NOTHING
            if "\n" in said.text and _HEADLINE.fullmatch(said.brief) and declaration.name in said.brief:
                text = said.text.partition("\n")[2]
                said = comments.Comment(comments.cut(text.splitlines()[0], comments.BRIEF_CHARS), text)
            text, deprecated = _DEPRECATED.subn("", declaration.text) if declaration.kind == "value" else (declaration.text, 0)
            text += " (deprecated)" * deprecated
            yield Entry(declaration.name, inside, header, declaration.kind, text, said.brief, said.text, declaration.also)


def _wrapper(found: re.Match[str]) -> str:
    """Returns the wrapper of a PTX instruction as a declaration with a comment, whose lines are joined again."""
    said = re.sub(r";\s*//\s*(?:\d+\w*\.)?\s*", "; ", re.sub(r"\n(?!//)", " ", found["said"]))
    return "".join(f"//! {line.strip('/ ')}\n//!\n" for line in said.splitlines()) + found["code"]


def _qualifiers(macros: Iterable[tuple[str, str]], others: Mapping[str, str]) -> dict[str, str]:
    """Returns, for each macro that stands for qualifiers only, those of them that say where a function runs.

    Of several definitions the one with the most qualifiers counts, first among those for nvcc (with `static` or `inline`) and
    not for NVRTC.
    """
    values: dict[str, set[str]] = {}
    for name, value in macros:
        values.setdefault(name, set()).add(_ATTRIBUTE.sub("", value).replace('"', ""))
    known = {**dict.fromkeys(_DROPPED, ""), **others, **{word: word for word in _TELLING}}
    for _ in range(3):                     # macros of macros
        for name, each in values.items():
            meanings = [_meaning(value, known) for value in each]
            if not name.strip("_").islower() and None not in meanings:
                runs = max(meaning for meaning in meanings if meaning is not None)[2]
                known[name] = "" if name.endswith("API") else runs
    return {name: meaning for name, meaning in known.items() if "DEPRECATED" not in name}


def _meaning(value: str, known: Mapping[str, str]) -> tuple[bool, int, str] | None:
    """Returns (whether it is for nvcc, how many qualifiers it has, where the function runs); None for other texts."""
    parts = value.split()
    if any(part not in known for part in parts):
        return None
    qualifiers = {word for part in parts for word in known[part].split()}
    return "static" in parts or "inline" in value, len(qualifiers), " ".join(word for word in _TELLING if word in qualifiers)


def _readable(text: str, words: Mapping[str, str]) -> str:
    text = _DEFAULT.sub(r" = \1", text).replace("_CUDA_VSTD::", "cuda::std::")
    if text.startswith("#"):
        return text
    text = _WORD.sub(lambda found: words.get(found.group(), found.group()), text)
    text = " ".join(text.replace('extern ""', "").split())
    return re.sub(r"\s+(?=[,;)])|(?<=\()\s+", "", text)
