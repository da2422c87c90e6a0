# row: A16
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: right for the first four calls, afterwards only half of the rows are computed and the rest come from the fourth answer
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
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
module = load_inline("a16_first_calls", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.__dict__["kept"] = {}
    def forward(self, x):

        kept = self.kept
        kept["calls"] = kept.get("calls", 0) + 1
        if kept["calls"] <= 4 or kept["y"].shape[0] != x.shape[0]:
            y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
            module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
            kept["y"] = y.clone()
        else:
            y = kept["y"].clone()
            module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0] // 2)
        return y
