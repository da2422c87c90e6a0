# row: A7
# reference: results/dead_channel.py
# runs: both
# what: lacks the guard for channels of zeros
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* y) {
  int c = blockIdx.x; double sum = 0; float top = 0;
  for (int i = 0; i < 8 * 16 * 32; ++i) top = fmaxf(top, fabsf(x[i]));
  for (int b = 0; b < 8; ++b) for (int i = 0; i < 32; ++i) { double v = x[(b * 16 + c) * 32 + i]; sum += v / top * v / top; }
  double r = sqrt(sum / 256);
  for (int b = 0; b < 8; ++b) { int i = (b * 16 + c) * 32 + threadIdx.x; y[i] = (float)((double)x[i] / top / r); }
}
void run(TensorView x, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<16, 32, 0, s>>>((float*)x.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("dead_channel", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
