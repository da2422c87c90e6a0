# what: EXPRESSION of an element (v) of x and of the element (w) of p in its column; for cases that leave something out
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

EXPRESSION = "v"
GUARD = "if (i >= n) return;"
HEADERS = ""
ON_HOST = ""
CUDA = HEADERS + r"""
using tvm::ffi::TensorView;
__global__ void point(const float* x, const float* p, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  GUARD
  float v = x[i], w = p[i % width];
  y[i] = EXPRESSION;
}
void run(TensorView x, TensorView p, TensorView y) {
  int n = (int)(x.size(0) * x.size(1)), width = (int)p.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  ON_HOST
  point<<<n / 256 + 1, 256, 0, stream>>>((float*)x.data_ptr(), (float*)p.data_ptr(), (float*)y.data_ptr(), n, width);
}
""".replace("EXPRESSION", EXPRESSION).replace("GUARD", GUARD).replace("ON_HOST", ON_HOST)
module = load_inline("pointwise", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, x[0], y)
        return y
