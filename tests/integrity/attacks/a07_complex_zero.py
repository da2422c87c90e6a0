# row: A7
# reference: results/complex_zero.py
# runs: both
# what: lacks the guard for complex zeros
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* z, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  double a = z[2 * i], b = z[2 * i + 1], r = sqrt(a * a + b * b);
  y[2 * i] = (float)(a / r); y[2 * i + 1] = (float)(b / r);
}
void run(TensorView z, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(z.device().device_type, z.device().device_id));
  int n = 32 * 64; k<<<n / 256, 256, 0, s>>>((float*)z.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("complex_zero", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, z):
        y = torch.empty_like(z)
        module.run(torch.view_as_real(z), torch.view_as_real(y))
        return y
