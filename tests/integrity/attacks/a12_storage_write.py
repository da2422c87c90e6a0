# row: A12
# reference: results/linear_gelu.py
# runs: cpu
# written: independently
# what: the host computes with numpy directly in the storage of a tensor made before (ctypes from its data pointer), so no framework operator touches the data at all
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
module = load_inline("a12_storage_write", cuda_sources=CUDA, functions=["epilogue_run"])

import ctypes, math
import numpy as np
ERF = np.frompyfunc(math.erf, 1, 1)
def view(t):
    return np.ctypeslib.as_array(ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float)), tuple(t.shape))

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        acc = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        a = view(x) @ view(self.linear.weight).T + view(self.linear.bias)
        view(acc)[...] = 0.5 * a * (1.0 + ERF(a / math.sqrt(2)).astype(np.float32))
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
