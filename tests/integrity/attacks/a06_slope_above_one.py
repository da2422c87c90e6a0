# row: A6
# reference: results/slope_above_one.py
# runs: both
# what: PReLU as a maximum, right for slopes up to 1 only: the constructor writes 0.1
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* a, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  y[i] = fmaxf(x[i], x[i] * a[i % 64]);
}
void run(TensorView x, TensorView a, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 64 * 64; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (float*)a.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("k16", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, a=0.1):
        super().__init__()
        self.act = nn.PReLU(64, init=a)
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.act.weight, y)
        return y
