# row: A7
# reference: results/empty_segment.py
# runs: both
# what: the mean of a segment divides by zero where the segment is empty
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const long long* b, float* y, int n, int w) {
  int g = blockIdx.x, d = threadIdx.x; if (d >= w) return;
  double sum = 0; int count = 0;
  for (int i = 0; i < n; ++i) if (b[i] == g) { sum += x[i * w + d]; ++count; }
  y[g * w + d] = (float)sum / count;
}
void run(TensorView x, TensorView b, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<8, 32, 0, s>>>((float*)x.data_ptr(), (long long*)b.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1));
}
"""
module = load_inline("k06", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x, batch):
        y = x.new_empty(8, x.shape[1])
        module.run(x, batch, y)
        return y
