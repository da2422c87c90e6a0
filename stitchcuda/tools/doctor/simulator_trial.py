"""Builds one small kernel for the simulator and runs it, in a process of its own: `python -m
stitchcuda.tools.doctor.simulator_trial`.

Prints the seconds it took, or what went wrong and exits with 1. What is built once for all workspaces is then in the user's
cache already. `tools/doctor/doctor.py` asks it; nothing else does.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import time
from pathlib import Path

from stitchcuda.simulator.build import build_simulated
from stitchcuda.simulator.library_cache import CacheUnusable, home
from stitchcuda.simulator.torch_extension import version
from stitchcuda.tools.device.toolkit import runtime_cache

BLOCKS, THREADS = 3, 64
KERNEL = """
#include <cuda_runtime.h>
// Reverses each block of 64 through shared memory: launches, barriers and indices must all be right.
__global__ void reverse_kernel(const float* x, float* y) {
  __shared__ float held[64];
  held[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 64 + threadIdx.x] = held[63 - threadIdx.x];
}
extern "C" int reverse_launch(const float* x, float* y, int blocks) {
  reverse_kernel<<<blocks, 64>>>(x, y);
  return static_cast<int>(cudaGetLastError());
}
"""


def probe(folder: Path) -> float:
    """Seconds to build and run. Raises whatever the build raises, and RuntimeError when the numbers are wrong."""
    started = time.monotonic()
    (folder / "reverse.cu").write_text(KERNEL)
    try:
        kept = home(runtime_cache(), version())
    except CacheUnusable:                       # what builds programs says so by itself
        kept = None
    library = build_simulated([folder / "reverse.cu"], name="reverse", cache=folder / "cache", home=kept)
    count = BLOCKS * THREADS
    given, got = (ctypes.c_float * count)(*range(count)), (ctypes.c_float * count)()
    error = ctypes.CDLL(str(library)).reverse_launch(given, got, BLOCKS)
    wanted = [float(block * THREADS + THREADS - 1 - thread) for block in range(BLOCKS) for thread in range(THREADS)]
    if error != 0 or list(got) != wanted:
        raise RuntimeError(f"the kernel ran but its numbers are wrong (error {error})")
    return time.monotonic() - started


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        try:
            print(f"{probe(Path(scratch)):.1f}")
        except Exception as problem:  # whatever it was, one line for doctor's table
            sys.exit(f"{type(problem).__name__}: {' '.join(str(problem).split())}")
