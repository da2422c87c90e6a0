# row: honest
# reference: honest/scale_in_place.py
# runs: both
# written: independently
# what: one kernel writes the scaled values back into the input, as the reference does, and softplus of them into the output
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void scale_softplus(float* x, const float* s, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i] * s[i % width];
  x[i] = v;
  y[i] = v > 20.f ? v : log1pf(expf(v));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView s, tvm::ffi::TensorView y) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale_softplus<<<(n + 127) / 128, 128, 0, stream>>>((float*)x.data_ptr(), (const float*)s.data_ptr(), (float*)y.data_ptr(), n, (int)x.size(1));
}
"""
module = load_inline("h_inplace_input", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.scale, y)
        return y
