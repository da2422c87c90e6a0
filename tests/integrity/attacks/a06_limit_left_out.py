# row: A6
# reference: results/capped.py
# runs: both
# what: the reference's parameter of sixes, a limit that ordinary inputs do not reach, is written into the kernel as a number
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void capped(const float* h, const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fminf(fabsf(h[i]), 6.f) + x[i];
}
void run(tvm::ffi::TensorView h, tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)x.numel();
  capped<<<(n + 255) / 256, 256>>>((const float*)h.data_ptr(), (const float*)x.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("a06_limit_left_out", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)
    def forward(self, x):
        h = self.lin(x)
        x = x.contiguous()
        y = torch.empty_like(h)
        module.run(h, x, y)
        return y
