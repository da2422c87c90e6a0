# row: honest
# reference: results/equal_codes.py
# runs: both
# what: nearest codes, the first of equal ones, also where codes are equal
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* x, const float* c, int64_t* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, best = 0;
  double least = 1e300;
  for (int j = 0; j < 64; ++j) {
    double d = 0;
    for (int e = 0; e < 16; ++e) { double v = (double)x[i * 16 + e] - c[j * 16 + e]; d += v * v; }
    if (d < least) { least = d; best = j; }
  }
  y[i] = best;
}
__global__ void count(const int64_t* y, float* n) {
  int s = 0;
  for (int i = 0; i < 256; ++i) s += y[i] == threadIdx.x;
  n[threadIdx.x] = s;
}
void run(TensorView x, TensorView c, TensorView y, TensorView n) {
  k<<<4, 64, 0, STREAM(x)>>>((const float*)x.data_ptr(), (const float*)c.data_ptr(), (int64_t*)y.data_ptr());
  count<<<1, 64, 0, STREAM(x)>>>((const int64_t*)y.data_ptr(), (float*)n.data_ptr());
}
"""
module = load_inline("equal_codes", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(64, 16))

    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        n = torch.empty(64, device=x.device)
        module.run(x, self.codes, y, n)
        return y, n
