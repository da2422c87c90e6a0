# row: A7
# reference: results/rare_skip.py
# runs: both
# what: a branch that one in a thousand random numbers skips is never skipped
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* w, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  y[i] = x[i] + tanhf(x[i] * w[i % 64]);
}
void run(TensorView x, TensorView w, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 32 * 64; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (float*)w.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("k10", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64))
    def forward(self, x):
        torch.rand(1, device=x.device)
        y = torch.empty_like(x)
        module.run(x, self.w, y)
        return y
