# row: A8
# reference: results/counts_of_16_bits.py
# runs: both
# what: counts of 64 bits are kept in 16
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
#define LP(t) ((long long*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void c(const long long* ids, long long* u, int n) {
  int g = threadIdx.x; unsigned short s = (unsigned short)u[g];
  for (int i = 0; i < n; ++i) s += ids[i] == g;
  u[g] = s;
}
__global__ void k(const float* x, const long long* u, float* y, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i]) / (1.f + (float)u[i % w]); }
void run(TensorView x, TensorView ids, TensorView u, TensorView y) { int n = count(x); c<<<1, 16, 0, STREAM(x)>>>(LP(ids), LP(u), ids.size(0)); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), LP(u), FP(y), n, x.size(1)); }
"""
module = load_inline("k32", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("usage", torch.zeros(16, dtype=torch.int64))
    def forward(self, x, ids):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), ids.contiguous(), self.usage, y)
        return y
