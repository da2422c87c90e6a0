# row: A7
# reference: results/tiny_rows_normalised.py
# runs: both
# what: normalises rows that are far below the guard of the norm
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
__global__ void k(const float* x, float* y, int rows, int w) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float most = 0.f, s = 0.f;
  for (int i = 0; i < w; ++i) most = fmaxf(most, fabsf(x[r * w + i]));
  float u = most > 0.f ? 1.f / most : 0.f;
  for (int i = 0; i < w; ++i) { float v = x[r * w + i] * u; s += v * v; }
  float f = s > 0.f ? 1.f / sqrtf(s) : 0.f;
  for (int i = 0; i < w; ++i) y[r * w + i] = x[r * w + i] * u * f;
}
void run(TensorView x, TensorView y) { int r = x.size(0), w = x.size(1); k<<<(r + 31) / 32, 32, 0, STREAM(x)>>>(FP(x), FP(y), r, w); }
"""
module = load_inline("tiny_rows_normalised", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), y)
        return y
