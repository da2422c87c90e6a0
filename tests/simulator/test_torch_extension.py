"""Sources in torch-extension style, unmodified, on CPU tensors."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from types import ModuleType

import pytest
import torch

from stitchcuda.simulator import torch_extension
from stitchcuda.simulator.torch_extension import build_torch_extension, inline_sources
from tests.simulator.programs import CACHE, HOME

CPP = "torch::Tensor gelu(torch::Tensor x);\nstd::vector<torch::Tensor> row_stats(torch::Tensor x);"
CUDA = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAException.h>

#define CHECK_CUDA(x) TORCH_CHECK(x.is_cuda(), #x " must be a CUDA tensor")
#define CHECK_INPUT(x) CHECK_CUDA(x); TORCH_CHECK(x.is_contiguous(), #x " must be contiguous")

template <typename scalar_t>
__global__ void gelu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, int64_t n) {
  CUDA_KERNEL_LOOP(i, n) {
    const float v = static_cast<float>(x[i]);
    y[i] = static_cast<scalar_t>(0.5f * v * (1.0f + erff(v * 0.70710678f)));
  }
}

torch::Tensor gelu(torch::Tensor x) {
  CHECK_INPUT(x);
  const at::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  const int threads = 256;
  const int blocks = at::cuda::getCurrentDeviceProperties()->multiProcessorCount;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "gelu", ([&] {
    gelu_kernel<scalar_t><<<blocks, threads, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  }));
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}

__global__ void stats(torch::PackedTensorAccessor32<float, 2, torch::RestrictPtrTraits> x, float* mean, float* top) {
  const int lane = threadIdx.x;
  float sum = 0, most = -INFINITY;
  for (int i = lane; i < x.size(1); i += 32) { sum += x[blockIdx.x][i]; most = max(most, x[blockIdx.x][i]); }
  for (int step = 16; step; step /= 2) {
    sum += __shfl_xor_sync(0xffffffff, sum, step);
    most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, step));
  }
  if (lane == 0) { mean[blockIdx.x] = sum / x.size(1); top[blockIdx.x] = most; }
}

std::vector<torch::Tensor> row_stats(torch::Tensor x) {
  TORCH_CHECK(x.device().is_cuda() && x.device().type() == torch::kCUDA);
  auto options = torch::TensorOptions().dtype(torch::kFloat32).device(torch::kCUDA, 0);
  auto mean = torch::empty({x.size(0)}, options.device(x.device())), top = torch::empty({x.size(0)}, x.options());
  stats<<<x.size(0), 32>>>(
      x.packed_accessor32<float, 2, torch::RestrictPtrTraits>(), mean.data_ptr<float>(), top.data_ptr<float>());
  return {mean, top};
}
"""


@pytest.fixture(scope="module")
def extension(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    folder = tmp_path_factory.mktemp("extension")
    sources = []
    for name, text in inline_sources([CPP], [CUDA], ["gelu", "row_stats"]).items():
        sources.append(folder / name)
        sources[-1].write_text(text)
    library = build_torch_extension(sources, name="simulated_extension", cache=CACHE, home=HOME)
    spec = importlib.util.spec_from_file_location("simulated_extension", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.more
@pytest.mark.timeout(600)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dispatch_over_types(extension: ModuleType, dtype: torch.dtype) -> None:
    x = torch.randn(10_000).to(dtype)
    torch.testing.assert_close(extension.gelu(x), torch.nn.functional.gelu(x), atol=2e-6 if dtype == torch.float64 else None,
                               rtol=1e-5 if dtype == torch.float64 else None)  # fmt: skip


@pytest.mark.more
@pytest.mark.timeout(600)
def test_accessors_and_several_results(extension: ModuleType) -> None:
    x = torch.randn(7, 90)
    mean, top = extension.row_stats(x)
    torch.testing.assert_close(mean, x.mean(1))
    assert torch.equal(top, x.max(1).values)


@pytest.mark.more
@pytest.mark.timeout(600)
def test_the_extensions_own_checks_speak(extension: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        extension.gelu(torch.randn(4, 4).t())


def test_precompiled_headers_of_versions_no_longer_used_are_removed(tmp_path: Path) -> None:
    now = time.time()
    for name, hours in {"used": 0.0, "a": 0.5, "b": 0.7, "c": 0.9, "d": 2.0, "e": 3.0}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "torch.h.gch").touch()
        os.utime(tmp_path / name, (now - 3600 * hours,) * 2)
    torch_extension._remove_unused(tmp_path / "used")
    assert {path.name for path in tmp_path.iterdir()} == {"used", "a", "b", "c"}  # c may be in use by another process
