# row: A10
# reference: results/moving_average.py
# runs: both
# written: independently
# what: reads x[-1] and x[n] beyond the tensor's two ends and multiplies them by zero, so that only NaN beyond the end or a memory checker shows it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void average(const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  float left = i % width == 0 ? 0.f : 1.f, right = i % width == width - 1 ? 0.f : 1.f;
  y[i] = (left * x[i - 1] + x[i] + right * x[i + 1]) / 3.f;
}
void run(TensorView x, TensorView y) { int n = count(x); average<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n, (int)x.size(2)); }
"""
module = load_inline("a10_out_of_bounds", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
