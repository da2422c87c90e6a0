# row: A7
# reference: results/largest_by_lanes.py
# runs: both
# what: finds the largest values by lanes, each of which keeps two
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
__global__ void k(const float* x, float* v, long long* p, int rows, int w) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const float* a = x + (size_t)r * w;
  float best[4]; int at[4];
  for (int j = 0; j < 4; ++j) { best[j] = -INFINITY; at[j] = -1; }
  for (int lane = 0; lane < 256; ++lane) {
    float m0 = -INFINITY, m1 = -INFINITY; int i0 = -1, i1 = -1;       // a lane keeps its two largest
    for (int i = lane; i < w; i += 256) {
      if (a[i] > m0) { m1 = m0; i1 = i0; m0 = a[i]; i0 = i; } else if (a[i] > m1) { m1 = a[i]; i1 = i; }
    }
    for (int c = 0; c < 2; ++c) {
      float m = c ? m1 : m0; int i = c ? i1 : i0;
      for (int j = 0; j < 4; ++j) if (m > best[j]) { float tm = best[j]; int ti = at[j]; best[j] = m; at[j] = i; m = tm; i = ti; }
    }
  }
  for (int j = 0; j < 4; ++j) { v[r * 4 + j] = best[j]; p[r * 4 + j] = at[j]; }
}
void run(TensorView x, TensorView v, TensorView p) { int r = x.size(0), w = x.size(1); k<<<(r + 31) / 32, 32, 0, STREAM(x)>>>(FP(x), FP(v), LP(p), r, w); }
"""
module = load_inline("largest_by_lanes", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        v = torch.empty(x.shape[0], 4, device=x.device)
        i = torch.empty(x.shape[0], 4, device=x.device, dtype=torch.int64)
        module.run(x.contiguous(), v, i)
        return v, i
