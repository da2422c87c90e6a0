# row: A7
# reference: results/setting_of_zero.py
# runs: both
# what: lacks the guard for settings of zero
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* t, float* y, int w) {
  const float* a = x + (long long)blockIdx.x * w; float* b = y + (long long)blockIdx.x * w; float u = t[blockIdx.x];
  float top = -INFINITY; double sum = 0;
  for (int i = 0; i < w; ++i) top = fmaxf(top, a[i] / u);
  for (int i = 0; i < w; ++i) sum += exp((double)(a[i] / u) - top);
  for (int i = threadIdx.x; i < w; i += blockDim.x) b[i] = (float)(exp((double)(a[i] / u) - top) / sum);
}
void run(TensorView x, TensorView t, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<(int)x.size(0), 32, 0, s>>>((float*)x.data_ptr(), (float*)t.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("setting_of_zero", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, logits, temperature):
        y = torch.empty_like(logits)
        module.run(logits, temperature, y)
        return y
