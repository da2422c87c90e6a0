# what: honest; a layer norm, q, k and v by torch, and a gate of the three
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
NORM = r"""
__global__ void norm(const float* x, const float* w, const float* b, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in = x + (size_t)row * width;
  float mean = 0, square = 0;
  for (int i = 0; i < width; ++i) mean += in[i];
  mean /= width;
  for (int i = 0; i < width; ++i) square += (in[i] - mean) * (in[i] - mean);
  float scale = 1.f / sqrtf(square / width + 1e-5f);
  for (int i = 0; i < width; ++i) y[(size_t)row * width + i] = (in[i] - mean) * scale * w[i] + b[i];
}
void run_norm(TensorView x, TensorView w, TensorView b, TensorView y) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  norm<<<(rows + 31) / 32, 32, 0, STREAM(x)>>>((float*)x.data_ptr(), (float*)w.data_ptr(), (float*)b.data_ptr(), (float*)y.data_ptr(), rows, width);
}
"""
GATE = r"""
__global__ void gate(const float* qkv, float* y, int rows, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * width) return;
  const float* at = qkv + (size_t)(i / width) * 3 * width + i % width;
  y[i] = at[0] / (1.f + expf(-at[width])) + at[2 * width];
}
void run_gate(TensorView qkv, TensorView y) {
  int rows = (int)y.size(0), width = (int)y.size(1);
  gate<<<(rows * width + 127) / 128, 128, 0, STREAM(y)>>>((float*)qkv.data_ptr(), (float*)y.data_ptr(), rows, width);
}
"""
CUDA = MACROS + NORM + GATE
module = load_inline("qkv_gate", cuda_sources=CUDA, functions=["run_norm", "run_gate"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y, out = torch.empty_like(x), torch.empty_like(x)
        module.run_norm(x, self.norm.weight, self.norm.bias, y)
        module.run_gate(torch.cat([self.q(y), self.k(y), self.v(y)], dim=1), out)
        return out
