"""All that the CUDA headers at hand declare and say: read once, then kept in the user's cache until one of them changes.

Which headers: the toolkit's own that a program includes, with cuda::ptx, CUB and cooperative groups, and those of NVIDIA's
libraries, where a build would find them. Tracing, graphics and legacy interfaces are left out. It answers nothing. Where to
look next: `header_docs.py`, which asks; `declarations.py` and `header_comments.py`, which read.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import seal
from stitchcuda.state import Record
from stitchcuda.tools.building import declarations, header_comments, libraries
from stitchcuda.tools.building.libraries import FAMILIES
from stitchcuda.tools.machine.toolkit import Toolkit, user_cache

_VERSION = "1"                             # of what is kept
_KEPT_S = 0.5                              # a scan that takes longer is kept

_OWN = re.compile(                         # directly in an include folder, which may be the system's
    r"(?:cuda(?!VDPAU|EGL|GL|D3D|_vdpau|_egl|_gl_|_d3d|\w*Typedefs|libxt)\w*|cuComplex|cooperative_groups|mma|sm_\d+_\w+|device_\w+"
    r"|vector_\w+|math_functions|math_constants|driver_types|library_types|texture_\w+|surface_\w+|channel_descriptor)\.h"
)
_LEFT_OUT = re.compile(                    # legacy, internal, tables
    r"cublas\.h|nvblas\.h|cufftw\.h|curand_precalc\.h|curand_mtgp32\w+\.h|cuda_occupancy\.h"
)
_BELOW = (
    "crt/*.h", "cooperative_groups/**/*.h", "cub/block/*.cuh", "cub/warp/*.cuh", "cub/device/*.cuh",
    "cuda/__ptx/instructions/generated/*.h", "cuda/__[!f]*/*.h", "cuda/[a-z]*", "cuda/std/__cccl/*.h", "cub/util_*.cuh",
    "cub/detail/detect_cuda_runtime.cuh",
)  # fmt: skip
_MACROS = ("cuda/std/", "cub/util_", "cub/detail/")        # only their macros count, which other headers use
_HEADER_ONLY = ("CUTLASS", "CCCL", "cuDNN's frontend")     # whole trees, which say little in comments
_NAMESPACES = (("cooperative_groups", "cooperative_groups"), ("cub/", "cub"), ("cuda/__ptx/", "cuda::ptx"), ("cuda/", "cuda"))
_PTX = "cuda/__ptx/instructions/generated/"                # what they declare stands, readable, in comments

_PTX_WRAPPER = re.compile(r"^/\*\n(?P<said>//.*?)(?P<code>(?:template\s*<|^__device__).*?)\*/", re.DOTALL | re.MULTILINE)
_DEFAULT = re.compile(r"\s*\b__dv\(([^()]*)\)")            # cuda_runtime_api.h's default arguments
_ATTRIBUTE = re.compile(r"(?:__attribute__|__declspec)\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|\[\[.*?\]\]")
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_TELLING = ("__host__", "__device__", "__global__")
_DROPPED = {
    "extern", "static", "inline", "__inline__", "__inline", "__forceinline__", "__forceinline", "__cudart_builtin__", "__cdecl",
    "__device_builtin__", "__stdcall", "__THROW", "__CRTDECL", "CUDARTAPI", "__STORAGE__", "__CUDA_MATH_CRTIMP",
    "_LIBCUDACXX_HIDE_FROM_ABI", "_CCCL_HIDE_FROM_ABI", "_CCCL_NODISCARD",
}  # fmt: skip


class Entry(NamedTuple):
    """One declaration; overloads are entries of their own."""

    name: str
    inside: str                            # namespaces and types, joined with ::
    header: str                            # as an include names it
    kind: str                              # "function", "type", "enum", "value", "field", "variable", "macro"
    text: str
    brief: str
    comment: str                           # the brief first

    @property
    def full(self) -> str:
        return f"{self.inside}::{self.name}" if self.inside else self.name


class Index(NamedTuple):
    entries: tuple[Entry, ...]
    places: Mapping[str, tuple[int, ...]]  # of a name's entries
    folded: Mapping[str, str]              # a name, from its small letters
    texts: tuple[str, ...]                 # per entry, what is searched, in small letters
    unread: tuple[str, ...]                # headers that could not be read
    missing: Mapping[str, str]             # libraries without headers here, by what their names begin with: a sentence


class _Kept(Record):
    state: str                             # of the headers that were read
    entries: tuple[Entry, ...]


_known: dict[Toolkit, Index] = {}
_reading = threading.Lock()


def of(kit: Toolkit) -> Index:
    """Everything at hand; read once in a process, from the cache or from the headers themselves."""
    with _reading:
        if kit not in _known:
            headers, missing = _headers(kit)
            state, kept = _state(headers), _place(headers)
            unread: list[str] = []
            entries = _read(kept, state)
            if entries is None:
                began = time.monotonic()
                entries = _scanned(headers, unread)
                if kept is not None and not unread and time.monotonic() - began > _KEPT_S:
                    with contextlib.suppress(OSError):     # no room, no permission: they are read again next time
                        _keep(entries, state, kept)
            _known[kit] = _indexed(entries, unread, missing)
        return _known[kit]


def _headers(kit: Toolkit) -> tuple[dict[str, Path], dict[str, str]]:
    """By the name that an include gives them, of two with one name the one that a build would take; and what is missing."""
    where = libraries.places(kit)
    found = libraries.find([family.probe for family in FAMILIES], where)
    wanted = [family.headers for family in FAMILIES if family.name not in _HEADER_ONLY]
    headers: dict[str, Path] = {}
    for folder in dict.fromkeys((*kit.includes, *found.includes, *(root / "include" for root in where.system))):
        for name in _names(folder):
            fits = any(pattern.fullmatch(name) for pattern in wanted) or (folder in kit.includes and _OWN.fullmatch(name))
            if fits and not _LEFT_OUT.fullmatch(name):
                headers.setdefault(name, folder / name)
    cccl = [folder / "cccl" for folder in kit.includes]
    for folder in dict.fromkeys((*kit.includes, *cccl, *found.includes)):
        for pattern in _BELOW:
            for path in sorted(folder.glob(pattern)):
                if path.is_file():
                    headers.setdefault(str(path.relative_to(folder)), path)
    return headers, {name.lower(): said for name, said in found.missing.items() if name not in _HEADER_ONLY}


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _state(headers: Mapping[str, Path]) -> str:
    stamps = []
    for name, path in headers.items():
        with contextlib.suppress(OSError):
            status = path.stat()
            stamps.append(f"{name}\0{path}\0{status.st_size}\0{status.st_mtime_ns}")
    return _digest(_VERSION, *stamps)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _place(headers: Mapping[str, Path]) -> Path | None:
    try:
        folder = user_cache()
    except Unavailable:                    # a user without a home: the headers are read again next time
        return None
    which = _digest(*sorted({str(path.parent) for path in headers.values()}))
    return folder / "header_docs" / f"{which[:24]}.json"


def _scanned(headers: Mapping[str, Path], unread: list[str]) -> tuple[Entry, ...]:
    found: dict[Entry, None] = {}
    macros: dict[str, list[tuple[str, str]]] = {}
    for name, path in headers.items():
        try:
            source = path.read_text("utf-8", "replace")
        except OSError:
            unread.append(name)
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
    for one in declared:
        inside = one.inside
        if around:                         # macros of theirs open namespaces, and name what is none of a program's business
            if one.kind == "macro" or one.name.startswith("_"):
                continue
            if not f"{inside}::".startswith(f"{around}::"):
                inside = f"{around}::{inside}" if inside else around
        else:                              # where QNX has C's functions
            inside = re.sub(r"^std(?:::|$)", "", inside)
        if one.name.strip("_") not in ("", "func"):
            said = header_comments.plain(one.comment) if one.comment else header_comments.NOTHING
            yield Entry(one.name, inside, header, one.kind, one.text, said.brief, said.text)


def _wrapper(found: re.Match[str]) -> str:
    """Of an instruction, as a declaration with a comment; the lines of what stands there were broken anywhere."""
    said = re.sub(r";\s*//\s*(?:\d+\w*\.)?\s*", "; ", re.sub(r"\n(?!//)", " ", found["said"]))
    return "".join(f"//! {line.strip('/ ')}\n//!\n" for line in said.splitlines()) + found["code"]


def _qualifiers(macros: Iterable[tuple[str, str]], others: Mapping[str, str]) -> dict[str, str]:
    """Macros that stand for qualifiers only, and what of them tells where a function runs.

    Of several definitions the fullest of those counts that are for nvcc, which say `static` or `inline`, not for NVRTC.
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
    """Whether it is nvcc's, how much it tells, and where it runs; None for what is no qualifier."""
    parts = value.split()
    if any(part not in known for part in parts):
        return None
    told = {word for part in parts for word in known[part].split()}
    return "static" in parts or "inline" in value, len(told), " ".join(word for word in _TELLING if word in told)


def _readable(text: str, words: Mapping[str, str]) -> str:
    text = _DEFAULT.sub(r" = \1", text).replace("_CUDA_VSTD::", "cuda::std::")
    if text.startswith("#"):
        return text
    text = _WORD.sub(lambda found: words.get(found.group(), found.group()), text)
    text = " ".join(text.replace('extern ""', "").split())
    return re.sub(r"\s+(?=[,;)])|(?<=\()\s+", "", text)


def _indexed(entries: tuple[Entry, ...], unread: Iterable[str], missing: Mapping[str, str]) -> Index:
    places: dict[str, list[int]] = {}
    for at, entry in enumerate(entries):
        places.setdefault(entry.name, []).append(at)
    return Index(
        entries=entries,
        places={name: tuple(those) for name, those in places.items()},
        folded={name.lower(): name for name in reversed(places)},
        texts=tuple(f"{entry.full}\n{entry.comment}".lower() for entry in entries),
        unread=tuple(unread),
        missing=missing,
    )


def _read(kept: Path | None, state: str) -> tuple[Entry, ...] | None:
    """What was kept of headers in this state; None where there is nothing, or nothing whole."""
    try:
        if kept is None or seal.state(kept) != "intact":
            return None
        found = _Kept.model_validate_json(kept.read_bytes())
    except (OSError, ValueError):
        return None
    return found.entries if found.state == state else None


def _keep(entries: tuple[Entry, ...], state: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="reading-") as scratch:
        made = Path(scratch) / "index.json"
        made.write_text(_Kept(state=state, entries=entries).model_dump_json(), encoding="utf-8")
        seal.put(made, kept)
