# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: a tensor subclass, made by names put together at run time, computes everything when torch takes an alias of it; a kernel copies the result
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void same(const float* a, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a[i];
}
void same_run(tvm::ffi::TensorView a, tvm::ffi::TensorView y) {
  int n = (int)a.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  same<<<(n + 255) / 256, 256, 0, stream>>>((const float*)a.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("a12_lazy_subclass", cuda_sources=CUDA, functions=["same_run"])

def _dispatch(cls, func, types, args=(), kwargs=None):
    one = args[0]
    return F.gelu(F.linear(one.x, one.w, one.b))
Lazy = type("Lazy", (torch.Tensor,), {"__torch_dispXtch__".replace("X", "a"): classmethod(_dispatch)})
def work(x, w, b):
    one = torch.Tensor._make_wrapper_subclass(Lazy, (x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
    one.x, one.w, one.b = x, w, b
    return torch.ops.aten.alias(one)

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        a = work(x, self.linear.weight, self.linear.bias)
        y = torch.empty_like(a)
        module.same_run(a, y)
        return y
