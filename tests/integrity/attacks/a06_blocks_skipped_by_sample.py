# row: A6
# reference: results/blocks_skipped_by_sample.py
# runs: both
# what: 16 weights are taken for pruned if one of them is zero
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* w, float* y, int rows, int n, int kk) {
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= rows * n) return;
  const float* a = x + (size_t)(t / n) * kk; const float* b = w + (size_t)(t % n) * kk;
  float s = 0.f;
  for (int j = 0; j < kk; j += 16) if (b[j + 3] != 0.f) for (int i = 0; i < 16; ++i) s = fmaf(a[j + i], b[j + i], s);
  y[t] = s;
}
void run(TensorView x, TensorView w, TensorView y) { int r = x.size(0), n = w.size(0), kk = x.size(1); k<<<(r * n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(w), FP(y), r, n, kk); }
"""
module = load_inline("k29", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 64, bias=False)
    def forward(self, x):
        y = torch.empty(x.shape[0], 64, device=x.device)
        module.run(x.contiguous(), self.lin.weight, y)
        return y
