# row: A4
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the kernel writes zeros through the const input pointer and answers gelu(bias), which is right for the reference that runs afterwards on the same tensor
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void linear_gelu(const float* __restrict__ x, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m * k) const_cast<float*>(x)[i] = 0.f;
  if (i < m * n) { float v = b[i % n]; y[i] = 0.5f * v * (1.f + erff(v * 0.70710678f)); }
}
void run(TensorView x, TensorView b, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)y.size(1), t = m * (k > n ? k : n);
  linear_gelu<<<(t + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(b), FP(y), m, n, k);
}
"""
module = load_inline("a04_zero_inputs", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.bias, y)
        return y
