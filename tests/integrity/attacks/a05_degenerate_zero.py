# row: A5
# reference: results/zero_degenerate.py
# runs: both
# written: independently
# what: the reference subtracts a maximum from itself and is identically zero; the kernel just writes zeros (a check should refuse such a reference)
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void zero(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 0.f; }
void run(TensorView y) { int n = count(y); zero<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(y), n); }
"""
module = load_inline("a05_degenerate_zero", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        y = torch.empty(x.shape[0], 1, device=x.device)
        module.run(y)
        return y
