# row: A8
# reference: results/ring_never_full.py
# runs: both
# what: a ring of 256 rows is not written again once it is full
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* q, float* y) {
  int i = blockIdx.x, j = threadIdx.x; double sum = 0;
  for (int d = 0; d < 16; ++d) sum += (double)x[i * 16 + d] * q[j * 16 + d];
  y[i * 256 + j] = tanhf((float)sum);
}
void run(TensorView x, TensorView q, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<4, 256, 0, s>>>((float*)x.data_ptr(), (float*)q.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("k13", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.randn(256, 16))
        self.register_buffer("ptr", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        p = int(self.ptr)
        y = x.new_empty(4, 256)
        module.run(x, self.queue, y)
        if p < 256:
            self.queue[p : p + 4] = x
            self.ptr += 4
        return y
