"""How long an extension takes to build, ours beside torch's own `load_inline`: `python benchmarks/extension_builds.py`.

Each kernel is built by both on this host, one after the other, from text that nobody has seen before, so that nothing is cached
but what is kept per torch version; both modules are imported, called, and have to agree with each other and with torch. Then
the same kernels with a mistake in them: how long until the compiler's message is there. The first build of a new cache, which
makes what is kept, is stated first. Needs a GPU and a torch with CUDA; with `--objects` only what the compilers do is timed,
on any machine with nvcc: torch's own commands at once, as its ninja file has them, but without its linking.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from stitchcuda.simulator.torch_extension import inline_sources
from stitchcuda.tools.build import bindings, nvcc
from stitchcuda.tools.device import toolkit

SCALE = r"""
template <typename scalar_t> __global__ void scale_kernel(const scalar_t* x, scalar_t* y, float by, int64_t n) {
  int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = static_cast<scalar_t>(static_cast<float>(x[i]) * by);
}
torch::Tensor run(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
    scale_kernel<scalar_t><<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), 0.5f, x.numel());
  });
  return y;
}
"""
SOFTMAX = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cmath>
__global__ void softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int columns) {
  __shared__ float part[32];
  const float* row = x + static_cast<int64_t>(blockIdx.x) * columns;
  float most = -INFINITY, sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += 32) most = fmaxf(most, row[i]);
  for (int o = 16; o > 0; o /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, o));
  for (int i = threadIdx.x; i < columns; i += 32) sum += expf(row[i] - most);
  part[threadIdx.x] = sum;
  __syncwarp();
  sum = 0.0f;
  for (int i = 0; i < 32; ++i) sum += part[i];
  for (int i = threadIdx.x; i < columns; i += 32) y[static_cast<int64_t>(blockIdx.x) * columns + i] = expf(row[i] - most) / sum;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty({x.size(0), x.size(1)}, x.options());
  softmax_kernel<<<x.size(0), 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}
"""
SUMS = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void sum_kernel(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* y) {
  float sum = 0.0f;
  for (int i = threadIdx.x; i < x.size(1); i += 32) sum += x[blockIdx.x][i];
  for (int o = 16; o > 0; o /= 2) sum += __shfl_down_sync(~0u, sum, o);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
torch::Tensor run(torch::Tensor x) {
  auto y = torch::zeros({x.size(0)}, torch::TensorOptions().dtype(torch::kFloat32).device(x.device()));
  sum_kernel<<<x.size(0), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(
      x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), y.data_ptr<float>());
  return y;
}
"""
GELU = r"""
#include <cuda_fp16.h>
#include <c10/cuda/CUDAStream.h>
__global__ void gelu_kernel(const float* x, const float* bias, float* y, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float value = x[i] + bias[i % width];
  y[i] = 0.5f * value * (1.0f + erff(value * 0.70710678f));
}
torch::Tensor run(torch::Tensor x) {
  auto bias = torch::ones({x.size(1)}, x.options());
  auto sum = at::matmul(x, torch::eye(x.size(1), x.options())).contiguous();
  auto y = torch::empty_like(sum);
  gelu_kernel<<<(x.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
      sum.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), x.size(1), x.numel());
  return y;
}
"""


class Kernel(NamedTuple):
    """`cuda` defines `run(x)`; `expected` is the same in torch's words; `mistake` replaces a word of it by one that is none."""

    cuda: str
    expected: str
    mistake: str


KERNELS = {
    "dispatched scale": Kernel(SCALE, "x * 0.5", "x.numel()"),
    "row softmax": Kernel(SOFTMAX, "torch.softmax(x, 1)", "columns +"),
    "accessor row sums": Kernel(SUMS, "x.sum(1)", "sum += x"),
    "gelu after a product": Kernel(GELU, "torch.nn.functional.gelu(x + 1)", "erff"),
}
DECLARED = "torch::Tensor run(torch::Tensor x);"


class Built(NamedTuple):
    seconds: float
    module: Any = None
    error: str = ""
    whole: bool = False                    # the light front did not suffice


def fresh(kernel: Kernel, *, broken: bool) -> str:
    cuda = kernel.cuda.replace(kernel.mistake, f"unheard_of {kernel.mistake}", 1) if broken else kernel.cuda
    return f"{cuda}\n// {uuid.uuid4()}\n"


def ours(cuda: str, folder: Path, cache: Path, arch: str, *, objects: bool) -> Built:
    name = f"own_{uuid.uuid4().hex[:8]}"
    files = written(cuda, folder / name)
    before = set(cache.rglob("*.json"))
    started = time.monotonic()
    made = nvcc.library(files, arch=arch, cache=cache, root=files[0].parent, binding=bindings.torch(name), includes=stubs())
    if made.path is None:
        return Built(time.monotonic() - started, error=made.log)
    module = None
    if not objects:
        from stitchcuda.verify.program.torch_loader import load_extension

        module = load_extension(name, made.path, module=True)
    seconds = time.monotonic() - started
    return Built(seconds, module, whole=any("whole of torch" in log.read_text() for log in set(cache.rglob("*.json")) - before))


def torchs(cuda: str, folder: Path, arch: str, *, objects: bool) -> Built:
    name = f"torchs_{uuid.uuid4().hex[:8]}"
    if objects:
        return by_hand(written(cuda, folder / name), name, arch)
    from torch.utils.cpp_extension import load_inline

    (place := folder / name).mkdir()
    started = time.monotonic()
    try:
        module = load_inline(  # type: ignore[no-untyped-call, unused-ignore]
            name, cpp_sources=DECLARED, cuda_sources=cuda, functions=["run"], build_directory=str(place)
        )
    except RuntimeError as error:
        return Built(time.monotonic() - started, error=str(error))
    return Built(time.monotonic() - started, module)


def by_hand(files: list[Path], name: str, arch: str) -> Built:
    """The commands of torch's ninja file, both at once."""
    kit = toolkit.find_toolkit()
    assert kit is not None
    binding = bindings.torch(name)
    number = arch.removeprefix("sm_")
    stub = [part for folder in stubs() for part in ("-isystem", str(folder))]
    cuda = [str(kit.nvcc), *binding.cuda_flags, f"-gencode=arch=compute_{number},code=sm_{number}", "-Xcompiler", "-fPIC"]
    cxx = ["g++", "-fPIC", *binding.cxx_flags]

    def run(source: Path) -> subprocess.CompletedProcess[str]:
        order = [*(cuda if source.suffix == ".cu" else cxx), *binding.includes, *stub, "-c", str(source), "-o", f"{source}.o"]
        return subprocess.run(order, capture_output=True, text=True, check=False)

    started = time.monotonic()
    with ThreadPoolExecutor(len(files)) as pool:
        done = list(pool.map(run, files))
    said = "".join(process.stdout + process.stderr for process in done if process.returncode != 0)
    return Built(time.monotonic() - started, error=said)


def written(cuda: str, folder: Path) -> list[Path]:
    folder.mkdir(parents=True)
    texts = inline_sources([DECLARED], [cuda], {"run": "run"})
    for name, text in texts.items():
        (folder / name).write_text(text)
    return [folder / name for name in texts]


def stubs() -> list[Path]:
    """A header that CPU builds of torch lack, though the others include it."""
    headers = bindings.torch("own").torch
    assert headers is not None
    if (headers / "c10/cuda/impl/cuda_cmake_macros.h").is_file():
        return []
    folder = Path(tempfile.gettempdir()) / f"stitchcuda-stubs-{os.getuid()}"
    (folder / "c10/cuda/impl").mkdir(parents=True, exist_ok=True)
    (folder / "c10/cuda/impl/cuda_cmake_macros.h").write_text("#pragma once\n#define C10_CUDA_BUILD_SHARED_LIBS\n")
    return [folder]


def agree(kernel: Kernel, modules: list[Any]) -> bool:
    """Both modules on one input give the same bits, and what torch gives up to rounding."""
    import torch

    x = torch.randn(257, 320, device="cuda")
    first, second = (module.run(x) for module in modules)
    wanted = eval(kernel.expected, {"torch": torch, "x": x})
    return bool(torch.equal(first, second)) and torch.allclose(first, wanted, rtol=1e-3, atol=1e-4)


def first_line(log: str) -> str:
    """The first error without its path, for comparing messages; "" without any."""
    found = re.search(r"cuda\.cu\((\d+)\): error: ([^\n]*)", log)
    return f"{found[1]}: {found[2]}" if found else log.strip()[:200]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arch", default="", help="sm_90a; the GPU's own if there is one")
    parser.add_argument("--objects", action="store_true", help="time the compilers only")
    parser.add_argument("--kernels", type=int, default=len(KERNELS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    import torch

    if not given.objects and not torch.cuda.is_available():
        print("no GPU that torch can use here: give --objects to time the compilers alone", file=sys.stderr)
        return 2
    arch = given.arch or ("sm_90a" if given.objects else "sm_{}{}".format(*torch.cuda.get_device_capability()))
    if not given.objects:
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "{}.{}".format(*torch.cuda.get_device_capability()))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="extension-builds-") as place:
        folder = Path(place)
        kernels = list(KERNELS.items())[: given.kernels]
        first = ours(fresh(kernels[0][1], broken=False), folder, folder / "cache", arch, objects=given.objects)
        print(f"first build in a new cache: {first.seconds:.1f} s {first.error}", flush=True)
        for name, kernel in kernels:
            for broken in (False, True):
                own = ours(fresh(kernel, broken=broken), folder, folder / "cache", arch, objects=given.objects)
                time.sleep(0 if not broken else 15)    # bindings go on when CUDA failed; they are not torch's to wait for
                other = torchs(fresh(kernel, broken=broken), folder, arch, objects=given.objects)
                same = bool(own.error) == bool(other.error) == broken
                if broken:
                    same = same and first_line(own.error) == first_line(other.error)
                elif not given.objects:
                    same = same and agree(kernel, [own.module, other.module])
                row = {"kernel": name, "broken": broken, "torch_s": other.seconds, "ours_s": own.seconds, "same": same}
                rows.append(row | {"whole": own.whole, "error": first_line(own.error)})
                what = f"{name}{', broken' if broken else ''}{', whole headers' if own.whole else ''}"
                print(f"{what}: torch {other.seconds:.1f} s, ours {own.seconds:.1f} s, same: {same}", flush=True)
                if not same:
                    print(f"ours: {own.error}\ntorch's: {other.error}", file=sys.stderr)
    factors = [row["torch_s"] / row["ours_s"] for row in rows if not row["broken"]]
    faster, same = statistics.geometric_mean(factors), all(row["same"] for row in rows)
    print(f"{faster:.1f} times faster by geometric mean, least {min(factors):.1f}; same results: {same}")
    made = {
        "date": datetime.date.today().isoformat(), "torch": torch.__version__, "cores": len(os.sched_getaffinity(0)),
        "arch": arch, "objects_only": given.objects, "first_s": first.seconds, "times_faster": faster, "rows": rows,
    }  # fmt: skip
    if given.json:
        given.json.write_text(json.dumps(made, indent=1) + "\n")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
