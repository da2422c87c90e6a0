# row: honest
# reference: honest/linear_gelu.py
# runs: both
# written: independently
# what: torch's addmm makes the product, an own kernel applies gelu in place on that intermediate and the intermediate itself is returned
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void gelu_in_place(float* v, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float a = v[i];
    v[i] = 0.5f * a * (1.f + erff(a * 0.70710678f));
  }
}
void gelu_(tvm::ffi::TensorView x) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  gelu_in_place<<<8, 256, 0, stream>>>((float*)x.data_ptr(), n);
}
"""
module = load_inline("h_inplace_intermediate", cuda_sources=CUDA, functions=["gelu_"])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        h = torch.addmm(self.linear.bias, x, self.linear.weight.t())
        module.gelu_(h)
        return h
