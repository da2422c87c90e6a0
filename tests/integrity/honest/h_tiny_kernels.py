# row: honest
# reference: honest/power_iteration.py
# runs: both
# written: independently
# what: three tiny kernels per step, twenty-four launches a call; each takes only microseconds but all of them matter
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void matvec(const float* a, const float* v, float* u, int n) {
  int row = blockIdx.x, lane = threadIdx.x;
  float s = 0.f;
  for (int j = lane; j < n; j += 32) s = fmaf(a[(size_t)row * n + j], v[j], s);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
  if (lane == 0) u[row] = s;
}
__global__ void norm(const float* u, float* r, int n) {
  float s = 0.f;
  for (int j = threadIdx.x; j < n; j += 32) s = fmaf(u[j], u[j], s);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_down_sync(0xffffffffu, s, d);
  if (threadIdx.x == 0) r[0] = sqrtf(s);
}
__global__ void divide(const float* u, const float* r, float* v, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) v[i] = u[i] / r[0];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView v, tvm::ffi::TensorView u, tvm::ffi::TensorView r, tvm::ffi::TensorView y, int64_t steps) {
  int n = (int)x.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const float* from = (const float*)v.data_ptr();
  float* to = (float*)y.data_ptr();
  for (int k = 0; k < (int)steps; ++k) {
    matvec<<<n, 32, 0, stream>>>((const float*)x.data_ptr(), from, (float*)u.data_ptr(), n);
    norm<<<1, 32, 0, stream>>>((const float*)u.data_ptr(), (float*)r.data_ptr(), n);
    divide<<<(n + 63) / 64, 64, 0, stream>>>((const float*)u.data_ptr(), (const float*)r.data_ptr(), to, n);
    from = to;
  }
}
"""
module = load_inline("h_tiny_kernels", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps

    def forward(self, a, v):
        out, u, r = torch.empty_like(v), torch.empty_like(v), torch.empty(1, device=v.device)
        module.run(a, v, u, r, out, self.steps)
        return out
