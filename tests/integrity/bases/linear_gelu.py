# what: honest; a linear layer with GELU, one thread to an element. `rows`: how many rows are computed
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void linear_gelu(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  const float* xr = x + (size_t)(i / n) * k; const float* wr = w + (size_t)(i % n) * k;
  float acc = 0.f;
  for (int j = 0; j < k; ++j) acc = fmaf(xr[j], wr[j], acc);
  acc += b[i % n];
  y[i] = 0.5f * acc * (1.f + erff(acc * 0.70710678f));
}
void run(TensorView x, TensorView w, TensorView b, TensorView y, int64_t rows) {
  int m = (int)rows, k = (int)x.size(1), n = (int)w.size(0);
  if (m > 0) linear_gelu<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(w), FP(b), FP(y), m, n, k);
}
"""
module = load_inline("linear_gelu", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        return y
