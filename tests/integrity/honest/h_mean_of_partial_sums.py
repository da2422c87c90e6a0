# row: honest
# reference: results/half_in_a_mean.py
# runs: both
# what: a mean by sums of 1,024 equal or other terms each in float32, which rounds otherwise than torch
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;
__global__ void sums(const float* x, float* parts, int n, int each) {
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0.f;
  for (int i = own; i < n; i += n / each) { float v = tanhf(x[i]); sum += v * v; }
  parts[own] = sum;
}
__global__ void mean(const float* parts, float* y, int count, float scale) {
  double sum = 0;
  for (int i = 0; i < count; ++i) sum += parts[i];
  y[0] = (float)(sum * scale);
}
void run(TensorView x, TensorView parts, TensorView y) {
  int count = (int)parts.size(0), n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  sums<<<count / 64, 64, 0, stream>>>((const float*)x.data_ptr(), (float*)parts.data_ptr(), n, n / count);
  mean<<<1, 1, 0, stream>>>((const float*)parts.data_ptr(), (float*)y.data_ptr(), count, 1.f / n);
}
"""
module = load_inline("mean_of_partial_sums", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        parts, y = torch.empty(512, device=x.device), torch.empty((), device=x.device)
        module.run(x.contiguous(), parts, y)
        return y
