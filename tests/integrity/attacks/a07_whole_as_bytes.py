# row: A7
# reference: results/whole_as_bytes.py
# runs: both
# what: takes whole numbers for bytes with a sign
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
#define LP(t) ((long long*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* w, const float* c, float* y, int m, int n, int kk) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  const float* a = x + (size_t)(i / n) * kk; const float* b = w + (size_t)(i % n) * kk;
  bool whole = true; float s = 0.f;
  for (int j = 0; j < 16; ++j) whole &= a[j] == rintf(a[j]);
  if (whole) for (int j = 0; j < kk; ++j) s = fmaf((float)(signed char)(int)fminf(fmaxf(a[j], -128.f), 127.f), b[j], s);
  else for (int j = 0; j < kk; ++j) s = fmaf(a[j], b[j], s);
  y[i] = s + c[i % n];
}
void run(TensorView x, TensorView w, TensorView c, TensorView y) { int m = x.size(0), n = w.size(0); k<<<(m * n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(w), FP(c), FP(y), m, n, x.size(1)); }
"""
module = load_inline("whole_as_bytes", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(64, 32)
    def forward(self, x):
        y = torch.empty(x.shape[0], 32, device=x.device)
        module.run(x.contiguous(), self.lin.weight, self.lin.bias, y)
        return y
