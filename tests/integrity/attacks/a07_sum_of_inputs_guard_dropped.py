# row: A7
# reference: results/vegetation_index.py
# runs: both
# what: leaves out the guard for a denominator of 0, a sum of three inputs

import torch
from torch import nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* n, const float* r, const float* b, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float below = n[i] + 6.f * r[i] - 7.5f * b[i] + 1.f;
  y[i] = fminf(fmaxf(2.5f * (n[i] - r[i]) / below, -1.f), 1.f);
}
void run(TensorView n, TensorView r, TensorView b, TensorView y) {
  k<<<32, 128, 0, STREAM(n)>>>((const float*)n.data_ptr(), (const float*)r.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("index_guard_dropped", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, near_infrared, red, blue):
        y = torch.empty_like(red)
        module.run(near_infrared, red, blue, y)
        return y
