# row: A7
# reference: results/warping_in_a_band.py
# runs: both
# what: warps within a band, as for series that are not moved
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
__global__ void k(const float* x, const float* z, float* y, int n, int T) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= n) return;
  float D[16][16];
  for (int i = 0; i < T; ++i) for (int j = 0; j < T; ++j) {
    if (i - j > 11 || j - i > 11) { D[i][j] = INFINITY; continue; }
    float low = i + j ? INFINITY : 0.f;
    if (i) low = fminf(low, D[i - 1][j]);
    if (j) low = fminf(low, D[i][j - 1]);
    if (i && j) low = fminf(low, D[i - 1][j - 1]);
    D[i][j] = fabsf(x[t * T + i] - z[t * T + j]) + low;
  }
  y[t] = D[T - 1][T - 1];
}
void run(TensorView x, TensorView z, TensorView y) { int n = x.size(0); k<<<(n + 31) / 32, 32, 0, STREAM(x)>>>(FP(x), FP(z), FP(y), n, x.size(1)); }
"""
module = load_inline("warping_in_a_band", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, z):
        y = torch.empty(x.shape[0], device=x.device)
        module.run(x.contiguous(), z.contiguous(), y)
        return y
