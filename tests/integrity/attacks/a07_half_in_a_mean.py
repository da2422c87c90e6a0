# row: A7
# reference: results/half_in_a_mean.py
# runs: both
# what: reads halves, whose rounding a mean over random numbers hides
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
#include <cuda_fp16.h>
__global__ void part(const float* x, double* p, int rows, int w) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  double s = 0;
  for (int i = 0; i < w; ++i) { float v = tanhf(__half2float(__float2half(x[(size_t)r * w + i]))); s += v * v; }
  p[r] = s;
}
__global__ void all(const double* p, float* y, int rows, long long n) { double s = 0; for (int i = 0; i < rows; ++i) s += p[i]; y[0] = (float)(s / n); }
void run(TensorView x, TensorView p, TensorView y) { int r = x.size(0), w = x.size(1); part<<<(r + 31) / 32, 32, 0, STREAM(x)>>>(FP(x), (double*)p.data_ptr(), r, w); all<<<1, 1, 0, STREAM(x)>>>((double*)p.data_ptr(), FP(y), r, (long long)r * w); }
"""
module = load_inline("half_in_a_mean", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        p, y = torch.empty(x.shape[0], dtype=torch.float64, device=x.device), torch.empty((), device=x.device)
        module.run(x.contiguous(), p, y)
        return y
