# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does everything inside of an operator that the program registers itself, under the last name of an allocation; a kernel copies the result
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
module = load_inline("a12_own_operator", cuda_sources=CUDA, functions=["same_run"])

lib = torch.library.Library("mine2", "DEF")
lib.define("empty(Tensor x, Tensor w, Tensor b) -> Tensor[]")
lib.impl("empty", lambda x, w, b: [F.gelu(F.linear(x, w, b))], "CompositeExplicitAutograd")

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        a = torch.ops.mine2.empty(x, self.linear.weight, self.linear.bias)[0]
        y = torch.empty_like(a)
        module.same_run(a, y)
        return y
