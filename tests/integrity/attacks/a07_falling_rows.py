# row: A7
# reference: results/falling_rows.py
# runs: both
# what: a stack of 32 waiting values
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* x, float* y) {
  int b = blockIdx.x * blockDim.x + threadIdx.x, stack[32], alike[192], top = 0;
  x += b * 192; y += b * 192;
  for (int i = 0; i < 192; ++i) {
    y[i] = 0.f;
    alike[i] = -1;
    while (top && x[i] > x[stack[top - 1]]) { --top; for (int j = stack[top]; j >= 0; j = alike[j]) y[j] = x[i] - x[j]; }
    if (top && x[i] == x[stack[top - 1]]) { alike[i] = stack[top - 1]; stack[top - 1] = i; }   // equal days wait together
    else if (top < 32) stack[top++] = i;
  }
}
void run(TensorView x, TensorView y) {
  k<<<4, 8, 0, STREAM(x)>>>((const float*)x.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("falling_rows", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, temperatures):
        y = torch.empty_like(temperatures)
        module.run(temperatures, y)
        return y
