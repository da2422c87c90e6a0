# row: A7
# reference: results/decay_cut.py
# runs: both
# what: a convolution with learned decay is cut at 64 of 192 lags
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* p, float* y, int n, int T, int D) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int d = i % D, t = i / D % T, b = i / D / T;
  float s = 0.f, rate = expf(p[d]);
  for (int lag = 0; lag <= t && lag < 64; ++lag) s += expf(-rate * lag) * x[((size_t)b * T + t - lag) * D + d];
  y[i] = s;
}
void run(TensorView x, TensorView p, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(p), FP(y), n, x.size(1), x.size(2)); }
"""
module = load_inline("k42", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.rate = nn.Parameter(torch.zeros(4))
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), self.rate, y)
        return y
