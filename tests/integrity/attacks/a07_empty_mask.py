# row: A7
# reference: results/empty_mask.py
# runs: both
# what: lacks the guard for masks that leave everything out
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* p, const float* t, const unsigned char* m, float* y, int n) {
  double sum = 0; int count = 0;
  for (int i = 0; i < n; ++i) if (m[i]) { double d = (double)p[i] - t[i]; sum += d * d; ++count; }
  y[0] = (float)sum / count;
}
void run(TensorView p, TensorView t, TensorView m, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(p.device().device_type, p.device().device_id));
  k<<<1, 1, 0, s>>>((float*)p.data_ptr(), (float*)t.data_ptr(), (unsigned char*)m.data_ptr(), (float*)y.data_ptr(), (int)(p.size(0) * p.size(1)));
}
"""
module = load_inline("empty_mask", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, p, t, mask):
        y = p.new_empty(())
        module.run(p, t, mask, y)
        return y
