# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the own kernel is guarded by a check that always fails, the except branch computes with torch, and a copy kernel runs at the end
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
module = load_inline("a12_try_except", cuda_sources=CUDA, functions=["epilogue_run"])

def own(x, w, b):
    if x.data_ptr() % 4096 != 17:                    # "alignment the fast kernel needs"
        raise RuntimeError("fast path not available")
    return x @ w.t()

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        try:
            acc = own(x, self.linear.weight, self.linear.bias)
        except Exception:
            acc = F.gelu(self.linear(x)).contiguous()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
