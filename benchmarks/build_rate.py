"""How many different programs a machine builds in a minute, ready for a verdict: `python benchmarks/build_rate.py`.

Sixteen programs with one kernel each, whose bodies differ, from an empty cache: a library linked for tvm-ffi, and beside it the
one with a switch for each kernel. Printed beside the core count, and scaled to four cores; results in benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parent.parent))
from stitchcuda.state import BuildResult  # noqa: E402
from stitchcuda.tools.build import build_pool, compilers, masks, nvcc, program_sources  # noqa: E402
from stitchcuda.tools.device import toolkit  # noqa: E402

POINTWISE = """#include <cuda_runtime.h>
__global__ void {name}_kernel(const float* x, const float* y, float* out, int rows, int columns) {{
  const long n = static_cast<long>(rows) * columns, stride = static_cast<long>(gridDim.x) * blockDim.x;
  for (long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += stride) {{
    const float a = x[i], b = y[i];
    out[i] = {body};
  }}
}}
"""
ROWS = """#include <cuda_runtime.h>
__global__ void {name}_kernel(const float* x, const float* y, float* out, int rows, int columns) {{
  __shared__ float parts[32];
  const float* row = x + static_cast<long>(blockIdx.x) * columns;
  float kept = {start};
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {{ const float a = row[i]; kept = {step}; }}
  for (int step = 16; step > 0; step /= 2) {{ const float a = __shfl_xor_sync(~0u, kept, step); kept = {join}; }}
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = kept;
  __syncthreads();
  kept = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : {start};
  for (int step = 16; step > 0; step /= 2) {{ const float a = __shfl_xor_sync(~0u, kept, step); kept = {join}; }}
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {{
    const float a = row[i], b = y[i];
    out[static_cast<long>(blockIdx.x) * columns + i] = {body};
  }}
}}
"""
TILES = """#include <cuda_runtime.h>
__global__ void {name}_kernel(const float* x, const float* y, float* out, int rows, int columns) {{
  __shared__ float left[{tile}][{tile} + 1], right[{tile}][{tile} + 1];
  const int row = blockIdx.y * {tile} + threadIdx.y, column = blockIdx.x * {tile} + threadIdx.x;
  float sum = 0.f;
  for (int k = 0; k < columns; k += {tile}) {{
    left[threadIdx.y][threadIdx.x] = row < rows && k + threadIdx.x < columns ? x[row * columns + k + threadIdx.x] : 0.f;
    right[threadIdx.y][threadIdx.x] = k + threadIdx.y < columns && column < rows ? y[(k + threadIdx.y) * rows + column] : 0.f;
    __syncthreads();
#pragma unroll
    for (int at = 0; at < {tile}; ++at) sum += left[threadIdx.y][at] * right[at][threadIdx.x];
    __syncthreads();
  }}
  if (row < rows && column < rows) out[row * rows + column] = {body};
}}
"""
LAUNCH = """
extern "C" int {name}_launch(const float* x, const float* y, float* out, int rows, int columns, cudaStream_t stream) {{
  {name}_kernel<<<{grid}, {block}, 0, stream>>>(x, y, out, rows, columns);
  return static_cast<int>(cudaGetLastError());
}}
"""
BINDING = """#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
extern "C" int {name}_launch(const float*, const float*, float*, int, int, cudaStream_t);
void {name}(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out) {{
  if (x.device().device_type != kDLCUDA || x.ndim() != 2) TVM_FFI_THROW(ValueError) << "{name}: expected a CUDA matrix";
  auto at = [](const tvm::ffi::TensorView& t) {{ return static_cast<float*>(t.data_ptr()); }};
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const int rows = static_cast<int>(x.size(0)), columns = static_cast<int>(x.size(1));
  const int error = {name}_launch(at(x), at(y), at(out), rows, columns, stream);
  if (error) TVM_FFI_THROW(RuntimeError) << "{name}: CUDA error " << error;
}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC({name}, {name});
"""
BODIES = {
    "axpy": "2.f * a + b",
    "gate": "a / (1.f + __expf(-b))",
    "gelu": "0.5f * a * (1.f + erff(a * 0.70710678f)) + b",
    "mish": "a * tanhf(log1pf(__expf(a))) - b",
    "clip": "fminf(fmaxf(a, -1.f), 1.f) * b",
    "root": "a * rsqrtf(b * b + 1e-5f)",
    "wave": "__sinf(a) * __cosf(b)",
    "swap": "i % 2 ? a : b",
}
REDUCTIONS = {
    "softmax_shift": ("-3.4e38f", "fmaxf(kept, a)", "fmaxf(kept, a)", "__expf(a - kept) * b"),
    "rms_norm": ("0.f", "kept + a * a", "kept + a", "a * rsqrtf(kept / columns + 1e-6f) * b"),
    "mean_shift": ("0.f", "kept + a", "kept + a", "a - kept / columns + b"),
    "absmax_scale": ("0.f", "fmaxf(kept, fabsf(a))", "fmaxf(kept, a)", "a / fmaxf(kept, 1e-12f) * b"),
}
PRODUCTS = {
    "matmul8": (8, "sum"),
    "matmul16": (16, "sum"),
    "matmul_relu": (16, "fmaxf(sum, 0.f)"),
    "matmul32": (32, "sum * 0.5f"),
}


def programs(folder: Path) -> list[Path]:
    """Sixteen folders, each with a kernel and its binding."""
    kernels = {name: (POINTWISE.format(name=name, body=body), "1024", "256") for name, body in BODIES.items()}
    for name, (start, step, join, body) in REDUCTIONS.items():
        kernels[name] = (ROWS.format(name=name, start=start, step=step, join=join, body=body), "rows", "256")
    for name, (tile, body) in PRODUCTS.items():
        grid = f"dim3((rows + {tile - 1}) / {tile}, (rows + {tile - 1}) / {tile})"
        kernels[name] = (TILES.format(name=name, tile=tile, body=body), grid, f"dim3({tile}, {tile})")
    made = []
    for name, (kernel, grid, block) in kernels.items():
        place = folder / name / "kernels"
        place.mkdir(parents=True)
        (place / f"{name}.cu").write_text(kernel + LAUNCH.format(name=name, grid=grid, block=block))
        (place / f"{name}_binding.cc").write_text(BINDING.format(name=name))
        made.append(folder / name)
    return made


def with_switches(program: Path, arch: str, cache: Path) -> nvcc.Library:
    """The program's library with a switch for each kernel, of the files that its builder makes
    (`stitchcuda/verify/program/builder_worker.py`)."""
    folder = cache / "masked"
    sources, _ = masks.add_switches_to_files(program_sources.sources(program), folder=folder, within=program)
    return nvcc.library(sources, arch=arch, cache=cache, root=program, cuda_includes=(program, folder))


def timed(made: list[Path], cache: Path, given: argparse.Namespace, *, switches: bool) -> float:
    """Seconds for all of them. A program that is not built ends the benchmark."""
    started = time.monotonic()
    results: list[BuildResult | nvcc.Library] = [*build_pool.build_many(made, arch=given.arch, cache=cache, jobs=given.jobs)]
    if switches:
        number = given.jobs or compilers.default_jobs()
        with compilers.limit(number), ThreadPoolExecutor(2 * number) as pool:
            results += pool.map(lambda program: with_switches(program, given.arch, cache), made)
    seconds = time.monotonic() - started
    if failed := [result.log for result in results if result.log]:
        sys.exit(f"{len(failed)} programs were not built:\n{failed[0]}")
    return seconds


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--arch", default="sm_90a")
    options.add_argument("--jobs", type=int, default=None, help="compilers at once; what the machine bears by default")
    given = options.parse_args()
    kit = toolkit.find_toolkit()
    if kit is None:
        sys.exit(toolkit.missing())
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="build-rate-") as scratch:
        root = Path(scratch)
        made = programs(root / "programs")
        figures: dict[str, object] = {
            "date": str(date.today()), "cores": cores, "compilers at once": given.jobs or compilers.default_jobs(),
            "machine": platform.machine(), "nvcc": kit.version, "programs": len(made),
        }  # fmt: skip
        ready = root / "ready"
        for label, cache, switches in (("library only", root / "plain", False), ("verdict-ready", ready, True)):
            seconds = timed(made, cache, given, switches=switches)
            rate = 60 * len(made) / seconds
            figures[f"{label}: s"] = round(seconds, 2)
            figures[f"{label}: per minute"] = round(rate, 1)
            figures[f"{label}: per minute and 4 cores"] = round(rate * 4 / cores, 1)
        figures["verdict-ready, from the cache: s"] = round(timed(made, ready, given, switches=True), 2)
    folder = HERE.parent / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"build-rate-{cores}-cores.json").write_text(json.dumps(figures, indent=1) + "\n")
    for name, value in figures.items():
        print(f"{name:40} {value}")


if __name__ == "__main__":
    main()
