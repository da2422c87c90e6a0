"""Builds one small kernel for the simulator and runs it, in a process that `stitchcuda doctor` starts.

`python -m stitchcuda.tools.doctor.simulator_trial` prints the seconds it took, or prints the error and exits with 1. The
simulator's own libraries, which are built once for all workspaces, are in the user's cache afterwards.
Where to look next: `tools/doctor/doctor.py` (which starts it), `simulator/build.py` (the build).
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
    """Returns the seconds to build and run. Raises what the build raises, and RuntimeError when the numbers are wrong."""
    started = time.monotonic()
    (folder / "reverse.cu").write_text(KERNEL)
    try:
        libraries = home(runtime_cache(), version())
    except CacheUnusable:                       # builds of programs report this; here each library is built anew
        libraries = None
    library = build_simulated([folder / "reverse.cu"], name="reverse", cache=folder / "cache", home=libraries)
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
        except Exception as problem:  # any error becomes one line of doctor's table
            sys.exit(f"{type(problem).__name__}: {' '.join(str(problem).split())}")
