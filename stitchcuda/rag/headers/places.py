"""Finds the headers on this machine, which library each belongs to, and that library's version.

The toolkit's own, cooperative groups, CUB and libcu++, and those of NVIDIA's libraries, from where a build would take them: the
system or Python's packages. It opens only what states a version. Where to look next: `rag/headers/reading.py`, which reads them
all; `tools/build/libraries.py`, which knows the places.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stitchcuda.tools.build import libraries
from stitchcuda.tools.build.libraries import FAMILIES
from stitchcuda.tools.device.toolkit import Toolkit

_OWN = re.compile(                         # directly in an include folder, which may be the system's
    r"(?:cuda\w*|cuComplex|cooperative_groups|mma|sm_\d+_\w+|device_\w+|vector_\w+|math_(?:functions|constants)|driver_\w+"
    r"|library_types|texture_\w+|surface_\w+|channel_descriptor|builtin_types|common_functions|host_(?:config|defines)|nvvm"
    r"|fatbinary_section|cudart_platform|cudnn_frontend\w*)\.(?:h|hpp)"
)
_TREES = {                                 # below an include folder
    "cuda": ("crt/*.h", "crt/*.hpp", "cooperative_groups/**/*.h"),
    "cccl": (
        "cub/*.cuh", "cub/block/*.cuh", "cub/warp/*.cuh", "cub/device/*.cuh", "cub/grid/*.cuh", "cub/iterator/*.cuh",
        "cub/thread/*.cuh", "cub/detail/detect_cuda_runtime.cuh", "cuda/__ptx/instructions/generated/*.h", "cuda/__[!f]*/*.h",
        "cuda/[a-z]*", "cuda/std/__cccl/*.h", "thrust/*.h",
    ),
    "frontend": ("cudnn_frontend/**/*.h",),
    "cutlass": ("cutlass/**/*.h", "cutlass/**/*.hpp", "cute/**/*.hpp"),
}  # fmt: skip
_REPEATED = re.compile(r"^(cudnn\w*)_v\d+\.h$")                 # cudnn_ops_v9.h says what cudnn_ops.h says
_GRAPHICS = r"cuda(?:\w*(?:EGL|GL|VDPAU)\w*|_(?:egl|gl|vdpau)\w*)\.h"
_LIBRARIES = (                             # the first that fits a header's name
    ("CUDA driver", re.compile(r"cuda\.h|cuda(?:GL|EGL|VDPAU)\w*\.h|cuda(?:Profiler)?Typedefs\.h")),
    ("CUDA runtime", re.compile(
        r"cuda_runtime\w*\.h|cuda_device_runtime_api\.h|driver_\w+\.h|library_types\.h|channel_descriptor\.h|texture_types\.h"
        rf"|surface_types\.h|cuda_(?:profiler|occupancy)\w*\.h|cudart_platform\.h|{_GRAPHICS}")),
    ("cuBLASLt", re.compile(r"cublasLt\.h")),
    ("cuBLAS, old interface", re.compile(r"cublas\.h|nvblas\.h")),
    ("cuBLAS", re.compile(r"cublas\w*\.h")),
    ("cuDNN frontend", re.compile(r"cudnn_frontend(?:\w*\.h|/.*)")),
    ("cuDNN", re.compile(r"cudnn\w*\.h")),
    ("cooperative groups", re.compile(r"cooperative_groups(?:\.h|/.*)")),
    ("CUB", re.compile(r"cub/.*")),
    ("Thrust", re.compile(r"thrust/.*")),
    ("libcu++", re.compile(r"cuda/.*")),
    ("CUTLASS", re.compile(r"(?:cutlass|cute)/.*")),
    *((family.name, family.headers) for family in FAMILIES if family.name not in ("CCCL", "CUTLASS", "cuDNN's frontend")),
)
_CUDA = "CUDA C++"                         # device functions and types: crt/, cuda_fp16.h, mma.h
_VERSIONS = {                              # header that states it, macros; one macro counts thousands and tens
    "CUDA driver": ("cuda.h", ("CUDA_VERSION",)),
    "CUDA runtime": ("cuda_runtime_api.h", ("CUDART_VERSION",)),
    "cuBLAS": ("cublas_api.h", ("CUBLAS_VER_MAJOR", "CUBLAS_VER_MINOR", "CUBLAS_VER_PATCH")),
    "cuDNN": ("cudnn_version.h", ("CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL")),
    "cuDNN frontend": (
        "cudnn_frontend_version.h",
        ("CUDNN_FRONTEND_MAJOR_VERSION", "CUDNN_FRONTEND_MINOR_VERSION", "CUDNN_FRONTEND_PATCH_VERSION"),
    ),
    "CUB": ("cuda/std/__cccl/version.h", ("CCCL_VERSION",)),
    "CUTLASS": ("cutlass/version.h", ("CUTLASS_MAJOR", "CUTLASS_MINOR", "CUTLASS_PATCH")),
}  # fmt: skip
_SAME = {
    _CUDA: "CUDA runtime", "cooperative groups": "CUDA runtime", "cuBLASLt": "cuBLAS", "cuBLAS, old interface": "cuBLAS",
    "Thrust": "CUB", "libcu++": "CUB", "NVRTC": "CUDA runtime",
}  # fmt: skip


class Headers(NamedTuple):
    """What there is to read."""

    files: dict[str, Path]                 # by the name that an include gives them, of two the one that a build would take
    missing: dict[str, str]                # libraries without headers here: a sentence with the remedy


def library_of(header: str) -> str:
    """Returns the library that a header belongs to: "cuBLASLt" for cublasLt.h."""
    return next((name for name, pattern in _LIBRARIES if pattern.fullmatch(header)), _CUDA)


def headers(kit: Toolkit) -> Headers:
    """Returns the headers that this toolkit's builds can include. Reads folders only."""
    where = libraries.places(kit)
    found = libraries.find([family.probe for family in FAMILIES], where)
    wanted = [family.headers for family in FAMILIES if family.name not in ("CCCL", "CUTLASS")]
    files: dict[str, Path] = {}
    for folder in dict.fromkeys((*kit.includes, *found.includes, *(root / "include" for root in where.system))):
        for name in _names(folder):
            if any(pattern.fullmatch(name) for pattern in wanted) or (folder in kit.includes and _OWN.fullmatch(name)):
                files.setdefault(name, folder / name)
    for folder in dict.fromkeys((*kit.includes, *(include / "cccl" for include in kit.includes), *found.includes)):
        for path in _below(folder):
            files.setdefault(str(path.relative_to(folder)), path)
    repeated = [name for name in files if _REPEATED.match(name) and _REPEATED.sub(r"\1.h", name) in files]
    files = {name: path for name, path in files.items() if name not in repeated}
    return Headers(files, {name: said for name, said in found.missing.items() if name != "CCCL"})


def versions(files: dict[str, Path]) -> dict[str, str]:
    """Returns versions by library, such as {"CUDA runtime": "13.0", "cuBLAS": "13.0.2"}; unknown ones are left out."""
    found = {library: said for library, (header, macros) in _VERSIONS.items() if (said := _version(files.get(header), macros))}
    return found | {library: found[other] for library, other in _SAME.items() if other in found}


def _below(folder: Path) -> Iterator[Path]:
    for patterns in _TREES.values():
        for pattern in patterns:
            yield from sorted(path for path in folder.glob(pattern) if path.is_file())


def _names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _version(path: Path | None, macros: tuple[str, ...]) -> str:
    try:
        text = path.read_text("utf-8", "replace") if path else ""
    except OSError:                        # whoever reads the headers says so
        return ""
    defined = (re.search(rf"^[ \t]*#[ \t]*define[ \t]+{macro}[ \t]+(\d+)", text, re.MULTILINE) for macro in macros)
    values = [found[1] for found in defined if found]
    whole = int(values[0]) if len(values) == 1 else 0
    if whole >= 1_000_000:                 # CCCL: 3000003 is 3.0.3
        return f"{whole // 1_000_000}.{whole // 1000 % 1000}.{whole % 1000}"
    if whole:                              # CUDA: 13020 is 13.2
        return f"{whole // 1000}.{whole % 1000 // 10}"
    return ".".join(values)
