# row: A7
# reference: results/tanh_by_exponentials.py
# runs: both
# what: a tanh whose exponential overflows before that beside it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* e, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  e[i] = expf(x[i]); float t = expm1f(2 * x[i]); y[i] = t / (t + 2);
}
void run(TensorView x, TensorView e, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 32 * 64; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (float*)e.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("tanh_by_exponentials", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        e, y = torch.empty_like(x), torch.empty_like(x)
        module.run(x, e, y)
        return e, y
