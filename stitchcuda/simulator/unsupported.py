"""Refuses constructs that the simulator cannot run, before anything is compiled, by construct, file and line.

`_CODE` and `_HEADERS` list them. A text is refused for what it says, not for what it would do, and may be right on a GPU: a
refusal means "could not judge", never "wrong".
Where to look next: `simulator/build.py` (who asks), `verify/program/failures.py` (what becomes of a refusal).
"""

from __future__ import annotations

import re
from pathlib import Path

from stitchcuda.errors import StitchError
from stitchcuda.simulator.source import line_of, masked


class Unsupported(StitchError):
    """The simulator cannot run a program because of one construct in it. `line` counts from 1."""

    def __init__(self, construct: str, file: Path | str, line: int) -> None:
        super().__init__(f"{file}:{line}: {construct} cannot run on the simulator")
        self.construct = construct
        self.file = str(file)
        self.line = line


_CODE: tuple[tuple[str, str], ...] = (
    ("inline PTX", r"\b(?:asm|__asm__|__asm)\b\s*(?:volatile|__volatile__)?\s*\("),
    ("wmma (tensor cores)", r"\bwmma\s*::|\bnvcuda\b"),
    ("CUTLASS or CuTe", r"\b(?:cutlass|cute)\s*::"),
    ("cub", r"\bcub\s*::"),
    ("Thrust", r"\bthrust\s*::"),
    ("TMA (tensor memory access)", r"\bCUtensorMap\b|\bcuTensorMapEncode\w*|\bcp_async_bulk\w*"),
    ("an asynchronous barrier or pipeline", r"\bcuda\s*::\s*(?:barrier|pipeline|memcpy_async|ptx)\b|\b__mbarrier_\w+"),
    ("a texture or surface", r"\b(?:tex|surf)(?:1D|2D|3D|Cubemap)\w*\s*[<(]|\bcuda(?:Texture|Surface)Object_t\b"),
    ("a cluster launch", r"\b__cluster_dims__\b|\bthis_cluster\b|\bcluster_group\b|\bcudaLaunchAttributeClusterDimension\b"),
    ("a cooperative launch (grid-wide barrier)", r"\bcudaLaunchCooperativeKernel\w*|\bthis_grid\s*\(\s*\)\s*\.\s*sync\b"),
    (
        "a programmatic dependent launch",
        r"\bcudaGridDependencySynchronize\b|\bcudaTriggerProgrammaticLaunchCompletion\b|\bcudaLaunchAttributeProgrammatic\w+",
    ),
    ("a CUDA graph built in C++", r"\bcudaGraph\w+|\bcudaStream(?:Begin|End)Capture\w*"),
    ("a launch through cudaLaunchKernelExC", r"\bcudaLaunchKernelExC\b"),
    ("cuBLAS", r"\bcublas(?:Lt)?[A-Z]\w*\s*\("),
    ("cuDNN", r"\bcudnn[A-Z]\w*\s*\(|\bcudnn_frontend\b"),
    ("cuRAND", r"\bcurand\w*\s*\(|\bcurandState\w*"),
    ("the CUDA driver API", r"\bcu(?:Init|Launch|Module|Ctx|Mem|Library|Kernel)[A-Z]\w*\s*\(|\bcuInit\s*\("),
    ("NVRTC", r"\bnvrtc[A-Z]\w*\s*\("),
)  # fmt: skip
_HEADERS: tuple[tuple[str, str], ...] = (
    ("wmma (tensor cores)", r"mma\.h"),
    ("CUTLASS or CuTe", r"(?:cutlass|cute)/.*"),
    ("cub", r"cub/.*"),
    ("Thrust", r"thrust/.*"),
    ("an asynchronous barrier or pipeline", r"cuda/(?:barrier|pipeline|ptx)|cuda_awbarrier\w*\.h"),
    ("cuBLAS", r"cublas\w*\.h"),
    ("cuDNN", r"cudnn\w*\.h"),
    ("cuRAND", r"curand\w*\.h"),
    ("cuFFT", r"cufft\w*\.h"),
    ("cuSPARSE", r"cusparse\w*\.h"),
    ("cuSOLVER", r"cusolver\w*\.h"),
    ("NVRTC", r"nvrtc\.h"),
    ("NCCL", r"nccl\.h"),
)  # fmt: skip
_PATTERNS = tuple((construct, re.compile(pattern)) for construct, pattern in _CODE)
_INCLUDES = tuple(
    (construct, re.compile(rf'^[ \t]*#[ \t]*include[ \t]*[<"](?:{header})[>"]', re.MULTILINE)) for construct, header in _HEADERS
)


def refuse(text: str, file: Path | str) -> None:
    """Raises `Unsupported` for the first construct in `text` that cannot run, in the order of lines."""
    code = masked(text)
    found: list[tuple[int, str]] = []
    for construct, pattern in _INCLUDES:
        # A quoted header's name is masked, so includes are searched in the text; those in comments are left out.
        found += [(match.start(), construct) for match in pattern.finditer(text) if "#" in code[match.start() : match.end()]]
    for construct, pattern in _PATTERNS:
        found += [(match.start(), construct) for match in pattern.finditer(code)]
    if found:
        at, construct = min(found)
        raise Unsupported(construct, file, line_of(text, at))
