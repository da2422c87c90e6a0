# row: A5
# reference: results/big_small.py
# runs: both
# written: independently
# what: the half of the output that is small (1e-3) is left zero beside values of 1e3, so any bound scaled to the largest or mean output passes it
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void big_small(const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int r = i / width, c = i % width;
  y[(size_t)r * 2 * width + c] = x[i] * 1000.f;
  y[(size_t)r * 2 * width + width + c] = 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); big_small<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n, (int)x.size(1)); }
"""
module = load_inline("a05_small_half_zero", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = torch.empty(x.shape[0], 2 * x.shape[1], device=x.device)
        module.run(x, y)
        return y
