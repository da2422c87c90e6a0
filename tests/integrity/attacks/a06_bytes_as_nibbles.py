# row: A6
# reference: results/bytes_as_nibbles.py
# runs: both
# what: weights of 8 bits are read as 4, which is all that the constructor writes
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const signed char* q, const float* sc, float* y, int m, int n, int kk) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float s = 0.f;
  for (int j = 0; j < kk; ++j) { int v = q[(i % n) * kk + j] & 15; s = fmaf(x[(i / n) * kk + j], (float)(v > 7 ? v - 16 : v), s); }
  y[i] = s * sc[i % n];
}
void run(TensorView x, TensorView q, TensorView sc, TensorView y) { int m = x.size(0), n = q.size(0); k<<<(m * n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), (signed char*)q.data_ptr(), FP(sc), FP(y), m, n, x.size(1)); }
"""
module = load_inline("k16", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("q", torch.randint(-8, 8, (48, 64), dtype=torch.int8))
        self.scale = nn.Parameter(torch.rand(48) * 0.1 + 0.05)
    def forward(self, x):
        y = torch.empty(x.shape[0], 48, device=x.device)
        module.run(x.contiguous(), self.q, self.scale, y)
        return y
