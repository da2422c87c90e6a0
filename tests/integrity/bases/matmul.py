# what: honest; a product, one thread to an element
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float acc = 0.f;
  for (int j = 0; j < k; ++j) acc = fmaf(a[(size_t)(i / n) * k + j], b[(size_t)j * n + i % n], acc);
  c[i] = acc;
}
void run(TensorView a, TensorView b, TensorView c) {
  int m = (int)a.size(0), k = (int)a.size(1), n = (int)b.size(1);
  matmul<<<(m * n + 255) / 256, 256, 0, STREAM(a)>>>(FP(a), FP(b), FP(c), m, n, k);
}
"""
module = load_inline("matmul", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device)
        module.run(a, b, c)
        return c
