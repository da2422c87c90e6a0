# row: A9
# reference: results/negative_bit.py
# runs: both
# what: the output is not negated but has torch's negative bit
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* g, float* y, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i]) * g[i % w]; }
void run(TensorView x, TensorView g, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(g), FP(y), n, x.size(1)); }
"""
module = load_inline("k20", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(64))
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), self.gain, y)
        return torch._neg_view(y)
