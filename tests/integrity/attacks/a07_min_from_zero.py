# row: A7
# reference: results/min_from_zero.py
# runs: both
# what: a row's least value begins at zero
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* y, int w) {
  const float* a = x + (long long)blockIdx.x * w; float* b = y + (long long)blockIdx.x * w;
  float lo = 0.f, hi = a[0];
  for (int i = 0; i < w; ++i) { lo = fminf(lo, a[i]); hi = fmaxf(hi, a[i]); }
  for (int i = threadIdx.x; i < w; i += blockDim.x) b[i] = (a[i] - lo) / (hi - lo + 1e-5f);
}
void run(TensorView x, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<(int)x.size(0), 32, 0, s>>>((float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("min_from_zero", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
