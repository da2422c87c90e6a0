# row: honest
# reference: honest/index_add.py
# runs: both
# written: independently
# what: scatters with float atomicAdd, so the order of summation differs from run to run; an own kernel zero-fills the output first
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void zero_fill(float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 0.f;
}
__global__ void scatter(const long long* index, const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&y[index[i / width] * width + i % width], x[i]);
}
void run(tvm::ffi::TensorView index, tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)(x.size(0) * x.size(1)), width = (int)x.size(1), cells = (int)y.size(0) * width;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  zero_fill<<<(cells + 255) / 256, 256, 0, stream>>>((float*)y.data_ptr(), cells);
  scatter<<<(n + 255) / 256, 256, 0, stream>>>((const long long*)index.data_ptr(), (const float*)x.data_ptr(), (float*)y.data_ptr(), n, width);
}
"""
module = load_inline("h_float_atomics", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, index, x):
        y = torch.empty(self.bins, x.shape[1], device=x.device, dtype=x.dtype)
        module.run(index, x, y)
        return y
