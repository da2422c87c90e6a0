# row: A7
# reference: results/softmax_maximum_from_zero.py
# runs: both
# what: a softmax whose maximum begins at zero, for rows that reach it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* y, int w) {
  long long o = (long long)blockIdx.x * w; float top = 0.f, sum = 0.f;
  for (int i = 0; i < w; ++i) top = fmaxf(top, x[o + i]);
  for (int i = 0; i < w; ++i) sum += expf(x[o + i] - top);
  for (int i = threadIdx.x; i < w; i += blockDim.x) y[o + i] = expf(x[o + i] - top) / sum;
}
void run(TensorView x, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<(int)x.size(0), 32, 0, s>>>((float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("softmax_maximum_from_zero", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
