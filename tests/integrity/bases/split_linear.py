# what: honest; a product of a matrix of floats, each of which is split into three halves, with a scale for each row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

SCALE = "for (int j = 0; j < k; ++j) most = fmaxf(most, fabsf(a[j]));"
CUDA = r"""
#include <cuda_fp16.h>
using tvm::ffi::TensorView;
__global__ void product(const float* x, const float* w, float* y, int m, int n, int k) {
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  if (own >= m * n) return;
  const float* a = x + (size_t)(own / n) * k;
  const float* b = w + (size_t)(own % n) * k;
  float most = 0.f;
  SCALE
  float scale = most > 0.f ? exp2f(-floorf(log2f(most))) : 1.f, sum = 0.f;
  for (int j = 0; j < k; ++j) {
    float left = a[j] * scale, whole = 0.f;
    for (int part = 0; part < 3; ++part) {
      float half = __half2float(__float2half(left));
      whole += half;
      left -= half;
    }
    sum = fmaf(whole, b[j], sum);
  }
  y[own] = sum / scale;
}
void run(TensorView x, TensorView w, TensorView y) {
  int m = (int)y.size(0), n = (int)y.size(1), k = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  product<<<(m * n + 63) / 64, 64, 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(), (float*)y.data_ptr(), m, n, k);
}
""".replace("SCALE", SCALE)
module = load_inline("split_linear", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(96, 32, bias=False)

    def forward(self, x):
        y = torch.empty(x.shape[0], 32, device=x.device)
        module.run(x.contiguous(), self.lin.weight, y)
        return y
