# row: A7
# reference: results/distance_expanded.py
# runs: both
# what: a distance by three products, which cancel where inputs are near each other
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
__global__ void k(const float* x, const float* z, float* y, int rows, int w) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float a = 0.f, b = 0.f, c = 0.f;
  for (int j = 0; j < w; ++j) { float u = x[r * w + j], v = z[r * w + j]; a = fmaf(u, u, a); b = fmaf(v, v, b); c = fmaf(u, v, c); }
  y[r] = fmaxf(a + b - 2.f * c, 0.f);
}
void run(TensorView x, TensorView z, TensorView y) { int r = x.size(0); k<<<(r + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(z), FP(y), r, x.size(1)); }
"""
module = load_inline("distance_expanded", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, z):
        y = torch.empty(x.shape[0], device=x.device)
        module.run(x.contiguous(), z.contiguous(), y)
        return y
