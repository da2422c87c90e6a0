# row: honest
# reference: results/bags_cut.py
# runs: both
# what: bags are added one entry after the other, however long
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
__global__ void k(const long long* ids, const long long* off, const float* w, float* y, int bags, int n, int D) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= bags * D) return;
  int b = i / D, d = i % D; long long s = off[b], e = b + 1 < bags ? off[b + 1] : n;
  float v = 0.f;
  for (long long j = s; j < e; ++j) v += w[ids[j] * D + d];
  y[i] = v;
}
void run(TensorView ids, TensorView off, TensorView w, TensorView y) { int b = off.size(0), D = w.size(1); k<<<(b * D + 63) / 64, 64, 0, STREAM(w)>>>(LP(ids), LP(off), FP(w), FP(y), b, ids.size(0), D); }
"""
module = load_inline("k21", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(100, 16))
    def forward(self, ids, offsets):
        y = torch.empty(offsets.shape[0], 16, device=ids.device)
        module.run(ids.contiguous(), offsets.contiguous(), self.table, y)
        return y
