# row: A9
# reference: results/pool_of_outputs.py
# runs: both
# what: outputs are views of one pool of 1,024 places, used in turn
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = tanhf(x[i]) * x[i];
}
void run(TensorView x, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  int n = 32 * 64; k<<<n / 256, 256, 0, s>>>((float*)x.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("k34", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.turn = None, 0
    def forward(self, x):
        if self.pool is None:
            self.pool = x.new_empty(1024, *x.shape)
        y = self.pool[self.turn % 1024]
        self.turn += 1
        module.run(x, y)
        return y
