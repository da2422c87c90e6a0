# row: A10
# reference: results/cumsum.py
# runs: cpu
# written: independently
# what: a prefix sum in which thread t reads what thread t-1 wrote with no barrier between: right where threads run one after another in order, a race on every GPU
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void cumsum_rows(const float* x, float* y, int width) {
  __shared__ float s[1024];
  int t = threadIdx.x; size_t at = (size_t)blockIdx.x * width + t;
  if (t < width) { s[t] = x[at] + (t ? s[t - 1] : 0.f); y[at] = s[t]; }
}
void run(TensorView x, TensorView y) { cumsum_rows<<<(int)x.size(0), (int)x.size(1), 0, STREAM(x)>>>(FP(x), FP(y), (int)x.size(1)); }
"""
module = load_inline("a10_serial_order", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
