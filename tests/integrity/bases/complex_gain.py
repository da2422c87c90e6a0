# what: honest; a complex gain for each column
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;
__global__ void gain(const float2* x, const float2* w, float2* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  float2 a = x[i], b = w[i % width];
  y[i] = make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}
void run(TensorView x, TensorView w, TensorView y) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = (int)(x.size(0) * x.size(1)), width = (int)x.size(1);
  gain<<<n / 128 + 1, 128, 0, stream>>>((float2*)x.data_ptr(), (float2*)w.data_ptr(), (float2*)y.data_ptr(), n, width);
}
"""
module = load_inline("complex_gain", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, dtype=torch.cfloat))

    def used(self):
        return self.gain

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(*(torch.view_as_real(tensor.contiguous()) for tensor in (x, self.used(), y)))
        return y
