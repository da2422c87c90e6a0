"""Builds a piece of CUDA with its binding for the simulator and loads it, as a program's own loader would."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import tvm_ffi

from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.library_cache import home
from stitchcuda.simulator.torch_extension import version
from stitchcuda.tools.device.toolkit import runtime_cache

# Kept between runs: what was built once is not built again, which is what the cache is for.
CACHE = Path(tempfile.gettempdir()) / "stitchcuda-simulator-tests"
HOME = home(runtime_cache(), version())    # of the simulator's own libraries (tests/conftest.py)
BINDING = Path(__file__).parent / "binding.cc"
Call = Callable[..., Any]


def load(folder: Path, cuda: str) -> Call:
    """`extern "C" int run(void* a, void* b, void* c, int n, int m, cudaStream_t)` of some CUDA code, as a Python function."""
    source = folder / "kernel.cu"
    source.write_text(cuda)
    module = tvm_ffi.load_module(str(build_simulated([source, BINDING], name="program", cache=CACHE, home=HOME)))

    def call(a: torch.Tensor, b: torch.Tensor | None, c: torch.Tensor, n: int = 0, m: int = 0) -> torch.Tensor:
        module.call(a, a if b is None else b, c, n, m)
        return c

    return call


def runs(kernel: str, launch: str) -> str:
    """A whole file from a kernel and the statement that launches it; a, b, c, n, m and stream are run's parameters."""
    body = f"  {launch}\n  return (int)cudaGetLastError();\n"
    return f'{kernel}\nextern "C" int run(void* a, void* b, void* c, int n, int m, cudaStream_t stream) {{\n{body}}}\n'
