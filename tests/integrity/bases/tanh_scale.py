# what: honest; tanh(x) * scale, and the same with y added
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define FP(t) ((float*)(t).data_ptr())
#define LAUNCH(n, t) ((int)(n) + 255) / 256, 256, 0, static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void both(const float* x, const float* y, const float* s, float* sum, float* own, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a = tanhf(x[i]) * s[i % width];
  sum[i] = a + y[i];
  own[i] = a;
}
__global__ void turn(float* t, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) t[i] = -t[i]; }
void run(TensorView x, TensorView y, TensorView s, TensorView sum, TensorView own) {
  int n = (int)(x.size(0) * x.size(1));
  both<<<LAUNCH(n, x)>>>(FP(x), FP(y), FP(s), FP(sum), FP(own), n, (int)s.size(0));
}
void flip(TensorView t, int64_t n) { turn<<<LAUNCH(n, t)>>>(FP(t), (int)n); }
"""
module = load_inline("tanh_scale", cuda_sources=CUDA, functions=["run", "flip"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)

    def compute(self, x, y):
        sum, own = torch.empty_like(x), torch.empty_like(x)
        module.run(x, y, self.scale, sum, own)
        return sum, own

    def forward(self, x, y):
        return *self.compute(x, y), None
