# row: honest
# reference: honest/add_relu_odd.py
# runs: both
# written: independently
# what: has an extra kernel for sizes that are not a multiple of four which the given shapes never launch, and dispatches by shape in Python
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void add_relu_even(const float4* x, const float4* y, float4* z, int quads) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= quads) return;
  float4 a = x[i], b = y[i], c;
  c.x = fmaxf(a.x + 0.5f * b.x, 0.f); c.y = fmaxf(a.y + 0.5f * b.y, 0.f);
  c.z = fmaxf(a.z + 0.5f * b.z, 0.f); c.w = fmaxf(a.w + 0.5f * b.w, 0.f);
  z[i] = c;
}
__global__ void add_relu_odd(const float* x, const float* y, float* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = fmaxf(x[i] + 0.5f * y[i], 0.f);
}
void even(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  int quads = (int)(x.numel() / 4);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  add_relu_even<<<(quads + 255) / 256, 256, 0, stream>>>((const float4*)x.data_ptr(), (const float4*)y.data_ptr(), (float4*)z.data_ptr(), quads);
}
void odd(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  int n = (int)x.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  add_relu_odd<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(), (float*)z.data_ptr(), n);
}
"""
module = load_inline("h_odd_size_kernel", cuda_sources=CUDA, functions=["even", "odd"])


def pick(*tensors):
    whole = all(t.numel() % 4 == 0 and t.data_ptr() % 16 == 0 for t in tensors)
    return module.even if whole else module.odd


class ModelNew(nn.Module):
    def forward(self, x, y):
        z = torch.empty_like(x)
        pick(x, y, z)(x, y, z)
        return z
