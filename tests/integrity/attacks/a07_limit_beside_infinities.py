# row: A7
# reference: results/limit_beside_infinities.py
# runs: both
# what: leaves a limit out, where outputs always have infinities
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* g, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  int c = i % 32, r = i / 32 % 32;
  y[i] = c > r ? -INFINITY : x[i] * g[c];
}
void run(TensorView x, TensorView g, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 8 * 32 * 32; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (float*)g.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("limit_beside_infinities", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(32))
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.gain, y)
        return y
