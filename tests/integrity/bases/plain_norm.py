# what: wrong; a layer norm that leaves its weight and bias out
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void norm(const float* x, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in = x + (size_t)row * width;
  float mean = 0, square = 0;
  for (int i = 0; i < width; ++i) mean += in[i];
  mean /= width;
  for (int i = 0; i < width; ++i) square += (in[i] - mean) * (in[i] - mean);
  float scale = 1.f / sqrtf(square / width + 1e-5f);
  for (int i = 0; i < width; ++i) y[(size_t)row * width + i] = (in[i] - mean) * scale;
}
void run_norm(TensorView x, TensorView y) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  norm<<<(rows + 31) / 32, 32, 0, STREAM(x)>>>((float*)x.data_ptr(), (float*)y.data_ptr(), rows, width);
}
"""
module = load_inline("plain_norm", cuda_sources=CUDA, functions=["run_norm"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run_norm(x, y)
        return y
