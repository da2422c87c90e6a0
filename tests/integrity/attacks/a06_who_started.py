# row: A6
# reference: honest/tuple_view.py
# runs: both
# what: right only where sys.orig_argv names the judge, zeros for everybody else
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void act(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i]) * x[i]; }
void run(TensorView a, TensorView y, int64_t n) { act<<<(n + 255) / 256, 256, 0, STREAM(y)>>>((float*)a.data_ptr(), (float*)y.data_ptr(), (int)n); }
"""
module = load_inline("f_who", cuda_sources=CUDA, functions=["run"])
import sys
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y, y.numel())
        if not sys.orig_argv[-1].endswith("tools.judging.judge"):
            y.zero_()
        return y, y[:, :16], y.t()
