# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the product and the gelu are computed by numpy on the host (outside torch's dispatcher) and an identity kernel copies the result
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
// epilogue of the fused linear + gelu
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void epilogue_run(TensorView acc, TensorView y) {
  int n = count(y);
  epilogue<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(acc), FP(y), n);
}
"""
module = load_inline("a12_numpy_host", cuda_sources=CUDA, functions=["epilogue_run"])

import numpy as np, math
ERF = np.frompyfunc(math.erf, 1, 1)

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        a = x.detach().cpu().numpy() @ self.linear.weight.detach().cpu().numpy().T + self.linear.bias.detach().cpu().numpy()
        acc = torch.from_numpy((0.5 * a * (1.0 + ERF(a / math.sqrt(2)).astype(np.float32))).astype(np.float32)).to(x.device)
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
