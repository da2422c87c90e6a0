# row: A6
# reference: results/permutation_written_in.py
# runs: both
# what: a permutation of the state is written into the kernel
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* g, float* y, int n, int w) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i / w * w + ((i % w) * 37 + 11) % w]) * g[i % w]; }
void run(TensorView x, TensorView g, TensorView y) { int n = count(x); k<<<(n + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(g), FP(y), n, x.size(1)); }
"""
module = load_inline("k17", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("perm", (torch.arange(64) * 37 + 11) % 64)
        self.gain = nn.Parameter(torch.randn(64))
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), self.gain, y)
        return y
