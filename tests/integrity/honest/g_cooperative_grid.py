# row: honest
# reference: honest/gpu_power_iteration.py
# runs: gpu
# written: independently
# what: all steps of a power iteration in one persistent cooperative kernel with grid-wide barriers
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cooperative_groups.h>
#include <stdexcept>
#include <string>
namespace cg = cooperative_groups;
__device__ __forceinline__ float warp_sum(float v) { for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d); return v; }
__device__ float inverse_norm(const float* u, int n, float* part) {   // every block computes the same number in the same order
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) { float v = __ldcg(u + i); s = fmaf(v, v, s); }
  s = warp_sum(s);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  s = 0.f;
  for (int k = 0; k < blockDim.x / 32; ++k) s += part[k];
  __syncthreads();
  return 1.f / sqrtf(s);
}
__global__ void __launch_bounds__(256) power(const float* a, const float* v, float* u0, float* u1, float* out, int n, int steps) {
  cg::grid_group grid = cg::this_grid();
  __shared__ float part[8];
  int lane = threadIdx.x % 32, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
  const float* from = v;
  float inv = 1.f;
  for (int step = 0; step < steps; ++step) {
    float* to = step % 2 ? u1 : u0;
    for (int row = warp; row < n; row += warps) {
      float s = 0.f;
      for (int j = lane; j < n; j += 32) s = fmaf(a[(size_t)row * n + j], __ldcg(from + j) * inv, s);
      s = warp_sum(s);
      if (lane == 0) to[row] = s;
    }
    grid.sync();
    inv = inverse_norm(to, n, part);
    from = to;
  }
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = __ldcg(from + i) * inv;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView v, tvm::ffi::TensorView u, tvm::ffi::TensorView y, int64_t steps_) {
  int n = (int)x.size(0), steps = (int)steps_, device = x.device().device_id, sms = 0, per = 0;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per, power, 256, 0);
  int blocks = sms * (per < 2 ? per : 2);
  const float* a = (const float*)x.data_ptr(); const float* v0 = (const float*)v.data_ptr();
  float* u0 = (float*)u.data_ptr(); float* u1 = u0 + n; float* out = (float*)y.data_ptr();
  void* args[] = {&a, &v0, &u0, &u1, &out, &n, &steps};
  cudaError_t e = cudaLaunchCooperativeKernel((const void*)power, dim3(blocks), dim3(256), args, 0, stream);
  if (e != cudaSuccess) throw std::runtime_error(cudaGetErrorString(e));
}
"""
module = load_inline("g_cooperative_grid", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, a, v):
        y, u = torch.empty_like(v), torch.empty(2, v.numel(), device=v.device)
        module.run(a, v, u, y, self.steps)
        return y
