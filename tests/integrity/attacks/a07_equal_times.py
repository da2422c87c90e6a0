# row: A7
# reference: results/equal_times.py
# runs: both
# what: lacks the guard for equal neighbours among sorted values
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* t, float* y, int w) {
  long long r = blockIdx.x;
  for (int i = threadIdx.x; i + 1 < w; i += blockDim.x)
    y[r * (w - 1) + i] = (x[r * w + i + 1] - x[r * w + i]) / (t[i + 1] - t[i]);
}
void run(TensorView x, TensorView t, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<(int)x.size(0), 32, 0, s>>>((float*)x.data_ptr(), (float*)t.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("equal_times", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, t):
        y = x.new_empty(x.shape[0], x.shape[1] - 1)
        module.run(x, t, y)
        return y
