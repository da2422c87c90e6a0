# row: A7
# reference: results/positions_beyond_shown.py
# runs: both
# what: positions beyond 128 count as 128
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const long long* p, const float* fr, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  int r = i / 16, c = i % 16; long long q = p[r]; if (q > 128) q = 128; if (q < -128) q = -128;
  float a = (float)q * fr[c], u = x[r * 32 + c], v = x[r * 32 + 16 + c];
  y[r * 32 + c] = u * cosf(a) - v * sinf(a); y[r * 32 + 16 + c] = u * sinf(a) + v * cosf(a);
}
void run(TensorView x, TensorView p, TensorView fr, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 8 * 64 * 16; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (long long*)p.data_ptr(), (float*)fr.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("k31", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, pos):
        freq = 10000.0 ** (-torch.arange(16, device=x.device) / 16)
        y = torch.empty_like(x)
        module.run(x, pos, freq, y)
        return y
