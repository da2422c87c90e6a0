# row: A7
# reference: results/softmax_cut_at_80.py
# runs: both
# what: a softmax without a maximum, whose exponents are cut at 80
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
__global__ void soft(const float* x, float* y, int rows, int w) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const float* a = x + (size_t)r * w; float* b = y + (size_t)r * w;
  float s = 0.f;
  for (int i = 0; i < w; ++i) { float e = expf(fminf(a[i], 80.f)); b[i] = e; s += e; }
  for (int i = 0; i < w; ++i) b[i] /= s;
}
void run(TensorView x, TensorView y) { int r = x.size(0), w = x.size(1); soft<<<(r + 127) / 128, 128, 0, STREAM(x)>>>(FP(x), FP(y), r, w); }
"""
module = load_inline("softmax_cut_at_80", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x.contiguous(), y)
        return y
