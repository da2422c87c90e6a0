# row: honest
# reference: honest/gpu_layer_norm.py
# runs: gpu
# written: independently
# what: launches with an L2 access-policy window over the norm's weight (a hint only) through cudaLaunchKernelEx; rows live in registers
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <algorithm>
template <int PER>
__global__ void __launch_bounds__(256) add_norm(const float* x, const float* z, const float* w, const float* b, float* y, int width, float eps) {
  __shared__ float part[2][8];
  float v[PER], s = 0.f, q = 0.f;
  size_t at = (size_t)blockIdx.x * width;
#pragma unroll
  for (int k = 0; k < PER; ++k) { int i = threadIdx.x + 256 * k; v[k] = i < width ? __ldcs(x + at + i) + __ldcs(z + at + i) : 0.f; s += v[k]; }
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (threadIdx.x % 32 == 0) part[0][threadIdx.x / 32] = s;
  __syncthreads();
  s = 0.f;
  for (int k = 0; k < 8; ++k) s += part[0][k];
  float m = s / width;
#pragma unroll
  for (int k = 0; k < PER; ++k) { int i = threadIdx.x + 256 * k; float d = i < width ? v[k] - m : 0.f; q = fmaf(d, d, q); }
  for (int d = 16; d > 0; d >>= 1) q += __shfl_xor_sync(0xffffffffu, q, d);
  if (threadIdx.x % 32 == 0) part[1][threadIdx.x / 32] = q;
  __syncthreads();
  q = 0.f;
  for (int k = 0; k < 8; ++k) q += part[1][k];
  float inv = 1.f / sqrtf(q / width + eps);
#pragma unroll
  for (int k = 0; k < PER; ++k) { int i = threadIdx.x + 256 * k; if (i < width) __stcs(y + at + i, (v[k] - m) * inv * __ldg(w + i) + __ldg(b + i)); }
}
torch::Tensor run(torch::Tensor x, torch::Tensor z, torch::Tensor w, torch::Tensor b, double eps) {
  int rows = x.size(0), width = x.size(1);
  TORCH_CHECK(width <= 2048, "width");
  auto y = torch::empty_like(x);
  int limit = 0;
  cudaDeviceGetAttribute(&limit, cudaDevAttrMaxAccessPolicyWindowSize, x.get_device());
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeAccessPolicyWindow;
  attribute[0].val.accessPolicyWindow.base_ptr = w.data_ptr();
  attribute[0].val.accessPolicyWindow.num_bytes = std::min<size_t>(limit, width * sizeof(float));
  attribute[0].val.accessPolicyWindow.hitRatio = 1.f;
  attribute[0].val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  attribute[0].val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows); config.blockDim = dim3(256); config.stream = c10::cuda::getCurrentCUDAStream();
  config.attrs = attribute; config.numAttrs = limit > 0 ? 1 : 0;
  cudaError_t e = cudaLaunchKernelEx(&config, add_norm<8>, (const float*)x.data_ptr<float>(), (const float*)z.data_ptr<float>(), (const float*)w.data_ptr<float>(),
                                     (const float*)b.data_ptr<float>(), y.data_ptr<float>(), width, (float)eps);
  TORCH_CHECK(e == cudaSuccess, cudaGetErrorString(e));
  return y;
}
"""
ops = load_inline(name="g_l2_policy", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor z, torch::Tensor w, torch::Tensor b, double eps);", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x, residual):
        return ops.run(x, residual, self.norm.weight, self.norm.bias, self.norm.eps)
