"""Names of NVIDIA's APIs in folders of headers: read once, then kept in the build cache until one of the files changes.

A header's text counts, not what a compiler makes of it: a name under any condition is a name, one in a comment or a string is
none. It knows nothing of programs. Where to look next: `tools/build/api_names.py`, which asks whether a called function exists.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from stitchcuda.sandbox import digest_seal
from stitchcuda.state import Record

NAME = r"cu(?<!\wcu)(?:(?:da|dnn|sparse|blas|fft|solver|rand)?[A-Z]|rand_)\w*"
"""What may be a name of these APIs: cudaMalloc, cuInit, cublasLtMatmul, cudnnCreate, curand_init. It begins with plain letters
for speed: the search for them is ten times as fast as one for a word's start."""

SUBFOLDERS = (
    "crt", "cooperative_groups", "nv", "nvtx3", "cuda", "cub", "thrust", "cutlass", "cute", "cudnn_frontend",
    "ATen", "c10", "caffe2", "torch", "pybind11", "tvm", "dlpack",
)  # fmt: skip
"""Below an include folder, whole trees that are read; /usr/include has others, which are not."""

_VERSION = "1"                             # of what is kept
_NAME = re.compile(NAME.encode())
_CALLABLE = re.compile(rf"{NAME}(?=\s*\((?!\s*\*))".encode())    # a type in front of `(*pointer)(` is not
_ALIAS = re.compile(rf"#[ \t]*define[ \t]+({NAME})[ \t]+({NAME})[ \t]*\n".encode())
_SILENT = re.compile(rb'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', re.DOTALL)
_PER_THREAD = re.compile(r"_pt(?:ds|sz)$")
_VARIANT = re.compile(r"(?:_v\d+)?(?:_64)?(?:_ptds|_ptsz)?$")
# Types, and what headers call among themselves.
_NO_FUNCTION = re.compile(r".*(?:_t|_st|_enum)|cudaCG\w+|cudaOcc[A-Z]\w+")


class Names(Record):
    """Of one folder."""

    every: frozenset[str]
    functions: frozenset[str]              # of the headers directly in it, without variants of the same: cuMemAlloc_v2

    def lacking(self, names: Collection[str]) -> set[str]:
        """Those that are not among them; CUDA's headers compose names for streams per thread: cudaMemcpyAsync_ptsz."""
        return {name for name in names if name not in self.every and _PER_THREAD.sub("", name) not in self.every}


class _Kept(Record):
    state: str                             # of the files that were read
    every: tuple[str, ...]
    functions: tuple[str, ...]


_known: dict[tuple[Path, bool], tuple[str, Names]] = {}


def of(folder: Path, cache: Path, *, deep: bool) -> Names:
    """Those in the headers of `folder`, and below it if `deep`. Raises `OSError` for a header that cannot be read."""
    folder = folder.resolve()
    files = sorted(_files(folder, deep))
    stamps = "\0".join(f"{path}\0{size}\0{changed}" for path, size, changed in files)
    state = hashlib.sha256(f"{_VERSION}\0{stamps}".encode("utf-8", "surrogateescape")).hexdigest()
    known = _known.get((folder, deep))
    if known is None or known[0] != state:
        which = hashlib.sha256(f"{deep}\0{folder}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
        kept = cache / "api_names" / f"{which}.json"
        names = _read(kept, state)
        if names is None:
            names = _scanned([path for path, _, _ in files], functions=not deep)
            with contextlib.suppress(OSError):     # no room, no permission: the headers are read again next time
                _keep(names, state, kept)
        known = _known[folder, deep] = (state, names)
    return known[1]


def _files(folder: Path, deep: bool, seen: frozenset[str] = frozenset()) -> Iterator[tuple[str, int, int]]:
    """(path, size, time of the last change) of each; links are followed, not in circles."""
    seen |= {os.path.realpath(folder)}
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file():
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns
            elif deep and entry.is_dir() and os.path.realpath(entry.path) not in seen:
                yield from _files(Path(entry.path), deep, seen)


def _scanned(paths: Sequence[str], *, functions: bool) -> Names:
    every: set[bytes] = set()
    called: set[bytes] = set()
    aliases: dict[bytes, bytes] = {}
    for path in paths:
        text = Path(path).read_bytes()
        if _NAME.search(text) is None:
            continue
        text = _SILENT.sub(b" ", text)
        every.update(_NAME.findall(text))
        if functions:
            called.update(_CALLABLE.findall(text))
            aliases.update(_ALIAS.findall(text))
    called.update(alias for alias, stands_for in aliases.items() if stands_for in called)
    names = frozenset(name.decode("ascii", "replace") for name in every)
    offered = (name.decode("ascii", "replace") for name in called)
    return Names(every=names, functions=frozenset(name for name in offered if _is_function(name, names)))


def _is_function(name: str, names: frozenset[str]) -> bool:
    plain = _VARIANT.sub("", name)
    return not _NO_FUNCTION.fullmatch(name) and (plain == name or plain not in names)


def _read(kept: Path, state: str) -> Names | None:
    """What was kept of files in this state; None where there is nothing, or nothing whole."""
    try:
        if digest_seal.state(kept) != "intact":
            return None
        found = _Kept.model_validate_json(kept.read_bytes(), strict=True)
    except (OSError, ValueError):
        return None
    return Names(every=frozenset(found.every), functions=frozenset(found.functions)) if found.state == state else None


def _keep(names: Names, state: str, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    found = _Kept(state=state, every=tuple(sorted(names.every)), functions=tuple(sorted(names.functions)))
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix="scanning-") as scratch:
        made = Path(scratch) / "names.json"
        made.write_text(found.model_dump_json(), encoding="utf-8")
        digest_seal.put(made, kept)
