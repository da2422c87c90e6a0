# row: honest
# reference: honest/linear_gelu_half.py
# runs: both
# what: a float16 layer with float32 accumulators in four interleaved parts and GELU in the same kernel: rounded once where the reference rounds twice
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_fp16.h>
__global__ void layer(const __half* x, const __half* w, const __half* b, __half* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  const __half* in = x + (size_t)(i / n) * k;
  const __half* weights = w + (size_t)(i % n) * k;
  float part[4] = {0.f, 0.f, 0.f, 0.f};
  for (int j = 0; j < k; ++j) part[j % 4] = fmaf(__half2float(in[j]), __half2float(weights[j]), part[j % 4]);
  float v = (part[0] + part[1]) + (part[2] + part[3]) + __half2float(b[i % n]);
  y[i] = __float2half(0.5f * v * (1.f + erff(v * 0.70710678f)));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int m = (int)y.size(0), n = (int)y.size(1), k = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  layer<<<(m * n + 127) / 128, 128, 0, stream>>>((const __half*)x.data_ptr(), (const __half*)w.data_ptr(), (const __half*)b.data_ptr(), (__half*)y.data_ptr(), m, n, k);
}
"""
module = load_inline("h_half_linear_gelu", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.fc = nn.Linear(k, n, dtype=torch.float16)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.fc.weight.shape[0], device=x.device, dtype=x.dtype)
        module.run(x.contiguous(), self.fc.weight, self.fc.bias, y)
        return y
