"""Finds the headers that simulated programs are compiled with: ours, NVIDIA's, and tvm-ffi's with its library.

NVIDIA's come from a toolkit on the machine (CUDA_HOME first) or from its wheels; neither compiler nor driver is needed. Nothing
here imports tvm_ffi, which would import torch.
Where to look next: `simulator/build.py` (who compiles with them).
"""

from __future__ import annotations

import importlib.util
import os
from functools import cache
from pathlib import Path

from stitchcuda import remedies
from stitchcuda.errors import Unavailable

HERE = Path(__file__).resolve().parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"


@cache
def cuda_includes() -> tuple[Path, ...]:
    """Returns NVIDIA's include folder and, if it is separate, that of its C++ core libraries. Raises `Unavailable`."""
    for folder in _candidates():
        if (folder / "cuda_runtime.h").is_file() and (folder / "cuda_fp16.h").is_file() and (folder / "crt").is_dir():
            return (folder, *(inner for inner in (folder / "cccl",) if inner.is_dir()))
    raise Unavailable(
        f"the simulator needs NVIDIA's CUDA headers and found none; {remedies.extra('toolkit')}, or set CUDA_HOME"
    )


def _candidates() -> list[Path]:
    found: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        found += sorted(Path(root).glob("cu[0-9]*/include"), reverse=True)
        found.append(Path(root) / "cuda_runtime" / "include")
    homes = [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    return [Path(home) / "include" for home in homes] + found + [Path("/usr/local/cuda/include"), Path("/opt/cuda/include")]


@cache
def tvm_ffi() -> tuple[tuple[Path, ...], Path]:
    """Returns tvm-ffi's include folders and its shared library. Raises `Unavailable`."""
    spec = importlib.util.find_spec("tvm_ffi")
    roots = list(spec.submodule_search_locations or ()) if spec is not None else []
    for root in map(Path, roots):
        library = root / "lib" / "libtvm_ffi.so"
        if library.is_file() and (root / "include" / "tvm").is_dir():
            return (root / "include",), library
    raise Unavailable(f"apache-tvm-ffi is not installed; {remedies.install('apache-tvm-ffi[cpp]')}")
