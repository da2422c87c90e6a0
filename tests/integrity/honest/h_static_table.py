# row: honest
# reference: honest/sinusoid_add.py
# runs: both
# written: independently
# what: caches a table that depends only on the shape (positional encoding, computed by torch on the first call of a shape); everything that depends on the input is computed anew by the kernel, which is cheaper than the reference
import functools
import math
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
template <typename T>
__global__ void add_table(const T* __restrict__ x, const T* __restrict__ table, T* __restrict__ y, int n, int period) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    T v = x[i] + __ldg(table + i % period);
    y[i] = v > T(0) ? v : T(0.1f) * v;
  }
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView table, tvm::ffi::TensorView y) {
  int n = (int)x.numel(), period = (int)table.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  add_table<float><<<30, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)table.data_ptr(), (float*)y.data_ptr(), n, period);
}
"""
module = load_inline("h_static_table", cuda_sources=CUDA, functions=["run"])


@functools.lru_cache(maxsize=16)
def sinusoids(t, c, device):
    pos = torch.arange(t, device=device, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, c, 2, device=device, dtype=torch.float32) * (-math.log(10000.0) / c))
    return torch.stack([torch.sin(pos * rate), torch.cos(pos * rate)], dim=-1).reshape(t, c)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, sinusoids(x.shape[-2], x.shape[-1], str(x.device)), y)
        return y
