# row: A7
# reference: results/edge_by_side.py
# runs: both
# what: takes the other side of an edge, for values that equal it
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
__global__ void k(const float* x, const float* e, const float* t, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int c = 0;
  for (int j = 0; j < 16; ++j) c += e[j] <= x[i];
  y[i] = t[c];
}
void run(TensorView x, TensorView e, TensorView t, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(e), FP(t), FP(y), n); }
"""
module = load_inline("edge_by_side", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(17))
    def forward(self, x, edges):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), edges.contiguous(), self.table, y)
        return y
