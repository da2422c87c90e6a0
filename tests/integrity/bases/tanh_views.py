# what: honest; tanh(x) * x and two views of it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void act(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i]) * x[i]; }
void run(TensorView a, TensorView y, int64_t n) { act<<<(n + 255) / 256, 256, 0, STREAM(y)>>>((float*)a.data_ptr(), (float*)y.data_ptr(), (int)n); }
"""
module = load_inline("tanh_views", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y, y.numel())
        return y, y[:, :16], y.t()
