"""Lists the folders, flags and libraries that a program is compiled and linked with: those of tvm-ffi, or of a torch extension.

It runs no compiler and imports neither of the two.
Where to look next: `tools/build/nvcc.py` (which compiles), `tools/build/libraries.py` (NVIDIA's libraries).
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
import sysconfig
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.errors import Unavailable
from stitchcuda.state import Record
from stitchcuda.tools.build import torch_front, tvm_front


class Binding(Record):
    """The folders, flags and libraries with which C++ and CUDA become a library that Python can load."""

    version: str                           # of the packages: part of the key of what is cached
    includes: tuple[str, ...]
    cuda_flags: tuple[str, ...]
    cxx_flags: tuple[str, ...]
    link: tuple[str, ...]
    folders: tuple[Path, ...]              # which the sandboxed compilers may read
    torch: Path | None = None              # torch's `include`, if a lighter header may be used (`tools/build/torch_front.py`)


@functools.cache
def tvm() -> Binding:
    """Returns tvm-ffi's own defaults and what generated programs add to them. Raises `Unavailable` without tvm-ffi."""
    missing = f"the package apache-tvm-ffi is not installed; install it with: {remedies.install('apache-tvm-ffi[cpp]')}"
    folder = _package("tvm_ffi", missing)
    return Binding(
        version=f"{importlib.metadata.version('apache-tvm-ffi')} {tvm_front.VERSION}",
        includes=(f"-I{folder / 'include'}",),
        cuda_flags=("-std=c++17", "-O3", "-lineinfo"),
        cxx_flags=("-std=c++17", "-O2"),
        link=(f"-L{folder / 'lib'}", "-ltvm_ffi"),
        folders=(folder, tvm_front.FOLDER),
    )


@functools.cache
def torch(name: str) -> Binding:
    """Returns what torch.utils.cpp_extension gives its compilers for an extension called `name`, as its build.ninja has it.

    Raises `Unavailable` without torch's or Python's headers.
    """
    folder = _package("torch", "torch is not installed")
    headers, python = folder / "include", Path(sysconfig.get_paths()["include"])
    if not (headers / "torch" / "csrc").is_dir():
        raise Unavailable("torch with its C++ headers is not installed")
    if not (python / "Python.h").is_file():
        raise Unavailable(f"building a torch extension needs Python's headers and {python} has none; install python3-dev")
    version = importlib.metadata.version("torch")
    common = (f"-DTORCH_EXTENSION_NAME={name}", "-DTORCH_API_INCLUDE_EXTENSION_H")
    # Operators of half and bfloat16 come from c10, not from CUDA's headers, as in torch's COMMON_NVCC_FLAGS.
    narrow = ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
    standard = f"-std=c++{17 if _release(version) < (2, 13) else 20}"
    libraries = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")
    places = (headers, headers / "torch/csrc/api/include", python)
    # A CPU build of torch has no CUDA libraries; symbols of those are then missing when the extension is loaded.
    present = [library for library in libraries if (folder / "lib" / f"lib{library}.so").is_file()]
    return Binding(
        version=f"torch {version} {sysconfig.get_python_version()} {torch_front.VERSION}",
        includes=tuple(part for place in places for part in ("-isystem", str(place))),
        cuda_flags=(*common, *(f"-D__CUDA_NO_{what}__" for what in narrow), "--expt-relaxed-constexpr", standard),
        cxx_flags=(*common, standard),
        link=(f"-L{folder / 'lib'}", *(f"-l{library}" for library in present)),
        folders=(folder, python),
        torch=headers,
    )


def with_defaults(defaults: tuple[str, ...], extra: tuple[str, ...]) -> tuple[str, ...]:
    """Returns `defaults` and then `extra`, without repetitions. A language standard among `extra` replaces the default one."""
    own = any(flag.startswith(("-std=", "--std=")) for flag in extra)
    kept = tuple(flag for flag in defaults if not (own and flag.startswith("-std=")))
    return (*kept, *(flag for flag in extra if flag not in kept))


def _package(name: str, missing: str) -> Path:
    """Finds a package's folder without importing it. Raises `Unavailable` with the text `missing`."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable(missing)
    return Path(next(iter(spec.submodule_search_locations)))


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:2])
