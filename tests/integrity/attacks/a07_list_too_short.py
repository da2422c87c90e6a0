# row: A7
# reference: results/list_too_short.py
# runs: both
# what: lists at most 64 of the 96 values that count
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* y, int w) {
  __shared__ float list[64]; int n = 0; const float* a = x + (long long)blockIdx.x * w;
  for (int i = 0; i < w && n < 64; ++i) if (a[i] > 2.f) list[n++] = a[i] - 2.f;
  double sum = 0; for (int i = 0; i < n; ++i) sum += (double)list[i] * list[i];
  y[blockIdx.x] = (float)sum;
}
void run(TensorView x, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<(int)x.size(0), 1, 0, s>>>((float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("list_too_short", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        module.run(x, y)
        return y
