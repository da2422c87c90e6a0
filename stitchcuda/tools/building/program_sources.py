"""Which files of a program are built, and what belongs together: looked up, never changed or compiled.

Where to look next: `nvcc.py` (one program's build), `build_pool.py` (many).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stitchcuda.simulator.includes import inside

CXX = (".cc", ".cpp", ".cxx", ".c++")
_HEADERS = (".h", ".hpp", ".cuh", ".inl", ".inc")


def sources(program: Path) -> list[Path]:
    """CUDA and C++ files of a program's folder; none of a program that is one file."""
    return sorted(path for path in program.rglob("*") if path.suffix in (".cu", *CXX)) if program.is_dir() else []


def groups(files: Sequence[Path]) -> list[list[Path]]:
    """What belongs in one library: NAME.cu with NAME_binding.cc, as programs load them; else everything together."""
    found = {path.with_suffix(""): [path] for path in files if path.suffix == ".cu"}
    for path in files:
        if path.suffix != ".cu":
            owner = path.with_name(path.stem.removesuffix("_binding"))
            if owner not in found:
                return [list(files)]
            found[owner].append(path)
    return list(found.values())


def headers(source: Path, root: Path, includes: Sequence[Path]) -> list[Path]:
    """Headers that count as sources: the program's, or an inline source's own, and those of the program's include folders."""
    home = root if source.is_relative_to(root) else source.parent
    folders = [home, *(folder for folder in includes if folder.is_relative_to(root))]
    found = {path for folder in folders for path in folder.rglob("*") if path.suffix in _HEADERS and path.is_file()}
    return sorted(path for path in found if inside(path, (*folders, root)))


def has_inline(program: Path) -> bool:
    """Whether its Python files hold kernels as text."""
    files = [program] if program.is_file() else list(program.glob("*.py"))
    return any("__global__" in file.read_text(errors="replace") for file in files)
