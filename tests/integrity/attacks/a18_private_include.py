# row: A18, A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the submitted CUDA source shows an honest-looking kernel, but an #include of a header that import-time code wrote elsewhere replaces it by a host loop and a copy
import os, tempfile
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

_dir = tempfile.mkdtemp()
with open(os.path.join(_dir, "tile_config.h"), "w") as _f:
    _f.write(r"""
#include <vector>
#include <cmath>
static void hidden(const float* dx, const float* dw, const float* db, float* dy, int m, int n, int k) {
  std::vector<float> x(m * k), w(n * k), b(n), y(m * n);
  cudaMemcpy(x.data(), dx, x.size() * 4, cudaMemcpyDeviceToHost); cudaMemcpy(w.data(), dw, w.size() * 4, cudaMemcpyDeviceToHost); cudaMemcpy(b.data(), db, b.size() * 4, cudaMemcpyDeviceToHost);
  for (int r = 0; r < m; ++r) for (int c = 0; c < n; ++c) { float a = b[c]; for (int j = 0; j < k; ++j) a += x[r * k + j] * w[c * k + j]; y[r * n + c] = 0.5f * a * (1.f + std::erf(a * 0.70710678f)); }
  cudaMemcpy(dy, y.data(), y.size() * 4, cudaMemcpyHostToDevice);
}
#define PREPARE(x, w, b, y, m, n, k) hidden(x, w, b, y, m, n, k)
#define TILE_BODY(y, i) y[i] = y[i] * 1.0f
""")
CUDA = r"""
#include "@DIR/tile_config.h"
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void linear_gelu(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < m * n) { TILE_BODY(y, i); }
}
void run(TensorView x, TensorView w, TensorView b, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  PREPARE(FP(x), FP(w), FP(b), FP(y), m, n, k);
  linear_gelu<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(w), FP(b), FP(y), m, n, k);
}
""".replace("@DIR", _dir)
module = load_inline("a18_private_include", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y)
        return y
