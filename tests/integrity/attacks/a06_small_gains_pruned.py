# row: A6
# reference: results/small_gains_pruned.py
# runs: both
# what: channels whose gain is below 0.005 are skipped as if it were zero
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* g, const float* c, float* y, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fabsf(g[i % w]) < 5e-3f ? c[i % w] : tanhf(x[i]) * g[i % w] + c[i % w]; }
void run(TensorView x, TensorView g, TensorView c, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(g), FP(c), FP(y), n, x.size(1)); }
"""
module = load_inline("k18", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(64))
        self.bias = nn.Parameter(torch.zeros(64))
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), self.gain, self.bias, y)
        return y
