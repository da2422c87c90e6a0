# row: A3
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the kernel writes NaN everywhere; a check made of `not (difference > tolerance)` or allclose(equal_nan) after both were poisoned passes it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void linear_gelu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float zero = x[0] - x[0]; y[i] = zero / zero; }
}
void run(TensorView x, TensorView y) { int n = count(y); linear_gelu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
module = load_inline("a03_nan_wildcard", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, y)
        return y
