"""Lists a program's sources, which of them go into one library, and the headers that each includes.

Where to look next: `tools/build/nvcc.py` (one program's build), `tools/build/build_pool.py` (many).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from stitchcuda.simulator.includes import inside

CXX = (".cc", ".cpp", ".cxx", ".c++")
_TORCH = ("torch/", "ATen/", "c10/", "pybind11/")
_SETTINGS = re.compile(r"\bextra_(?:(?:cuda_)?cflags|include_paths)\b")
_PLAIN = re.compile(r"[\w.+@=,][\w.+@=, -]*")
_LONGEST = 64 * 2**20                      # bytes; a larger file is not read as a header
_INCLUDE = re.compile(
    r"\b(?:include(?:_next)?|import|(?P<asked>__has_include(?:_next)?))\b(?:[ \t]|/\*[^\n]*?\*/)*"
    r"""(?P<open>\(?)[ \t]*(?:"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>|(?P<word>[A-Za-z_]))?"""
)
_DIRECTIVE = re.compile(r"[^\n]*\*/|[ \t]*(?:#|%:|\?\?=)")   # before the word: a `#`, or the end of a comment that may hide one


def sources(program: Path) -> list[Path]:
    """Returns the CUDA and C++ files of a program's folder; [] for a program that is one Python file."""
    return sorted(path for path in program.rglob("*") if path.suffix in (".cu", *CXX)) if program.is_dir() else []


def is_plain(file: Path) -> bool:
    """Whether the relative path needs no quotes in a shell: nvcc runs its commands through one."""
    return all(_PLAIN.fullmatch(part) for part in file.parts)


def groups(files: Sequence[Path], root: Path) -> list[list[Path]]:
    """Groups the sources of the program in the folder `root` by library: NAME.cu with NAME_binding.cc, as programs load them;
    else all in one. A group that includes torch's headers is left out: only torch's `load` knows how to build it."""
    found = {path.with_suffix(""): [path] for path in files if path.suffix == ".cu"}
    for path in files:
        if path.suffix != ".cu":
            owner = path.with_name(path.stem.removesuffix("_binding"))
            if owner not in found:
                found = {root: list(files)}
                break
            found[owner].append(path)
    return [group for group in found.values() if not any(_includes_torch(path, root) for path in group)]


def _includes_torch(source: Path, root: Path) -> bool:
    files = (source, *headers(source, root, ())) if _readable(source) else ()
    return any(name.startswith(_TORCH) for file in files for name in _included(file) or ())


def headers(source: Path, root: Path, includes: Sequence[Path]) -> list[Path]:
    """Returns the program's files that a source may include, directly or through others; for inline CUDA, files beside it.

    Rather too many than too few, since they are hashed: every file with an included name, in whatever folder and under whatever
    condition; all files, if a macro composes the name.
    """
    home = root if source.is_relative_to(root) else source.parent
    folders = (home, *(folder for folder in includes if folder.is_relative_to(root)))
    there: dict[str, list[Path]] = {}
    for path in {path for folder in folders for path in folder.rglob("*")}:
        there.setdefault(path.name, []).append(path)
    found: set[Path] = set()
    seen, waiting = {source}, [source]
    while waiting:
        file = waiting.pop()
        names = _included(file)
        if names is None:
            near = [path for paths in there.values() for path in paths]
        else:
            near = [path for name in names for path in (file.parent / name, *there.get(Path(name).name, ()))]
        for path in near:
            if path not in seen:
                seen.add(path)
                if _readable(path) and inside(path, (*folders, *includes, root)):
                    found.add(path)
                    waiting.append(path)
    return sorted(found)


def _included(file: Path) -> set[str] | None:
    """Returns the names that the file includes, in comments too; None if a macro composes one."""
    text = re.sub(r"\\[ \t]*\r?\n", "", file.read_bytes().decode("utf-8", "surrogateescape"))
    names: set[str] = set()
    for found in _INCLUDE.finditer(text):
        if (name := found["quoted"] or found["angled"]) is not None:
            names.add(name)
        elif found["asked"] is not None:
            if found["open"] and found["word"]:
                return None
        elif _DIRECTIVE.match(text, text.rfind("\n", 0, found.start()) + 1, found.start()):
            return None
    return names


def _readable(path: Path) -> bool:
    """Whether it is a plain file that can be read whole; of others the compiler reports what is wrong."""
    try:
        return path.is_file() and path.stat().st_size <= _LONGEST and os.access(path, os.R_OK)
    except OSError:                        # a name that no file can have
        return False


def has_inline(program: Path) -> bool:
    """Whether its Python files hold kernels as text."""
    return any("__global__" in text for text in _python(program))


def has_settings(program: Path) -> bool:
    """Whether its Python files name flags or folders of headers for their builds, which nobody knows before they run."""
    return any(_SETTINGS.search(text) for text in _python(program))


def _python(program: Path) -> list[str]:
    files = [program] if program.is_file() else list(program.glob("*.py"))
    return [file.read_text(errors="replace") for file in files]
