# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: as the identity after torch, but torch runs with every dispatch mode switched off, so that a counter of framework operators sees nothing
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
module = load_inline("a12_modes_off", cuda_sources=CUDA, functions=["epilogue_run"])

import contextlib
from torch.utils import _python_dispatch as pd
@contextlib.contextmanager
def quiet():
    with contextlib.ExitStack() as stack:
        try: stack.enter_context(pd._disable_current_modes())
        except Exception: pass
        for name in ("DisableTorchFunction", "DisableTorchFunctionSubclass", "_DisableTorchDispatch"):
            try: stack.enter_context(getattr(torch._C, name)())
            except Exception: pass
        yield

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        with quiet():
            acc = torch._C._nn.gelu(torch._C._nn.linear(x, self.linear.weight, self.linear.bias)).contiguous()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
