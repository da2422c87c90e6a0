# what: honest; eight rounds of tanh, exp and a sum along each row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

KERNEL = r"""
__global__ void smooth_kernel(const float* x, float* y, int cols) {
  __shared__ float part[256];
  __shared__ float row[2048];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  for (int i = t; i < cols; i += 256) row[i] = a[i];
  for (int round = 0; round < 8; ++round) {
    float s = 0.f;
    for (int i = t; i < cols; i += 256) { float e = expf(tanhf(row[i])); row[i] = e; s += e; }
    part[t] = s;
    __syncthreads();
    for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
    float r = 1.f / part[0];
    __syncthreads();
    for (int i = t; i < cols; i += 256) row[i] = row[i] * r + a[i];
  }
  for (int i = t; i < cols; i += 256) b[i] = row[i];
}
static void smooth_rows(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) smooth_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
}
"""
CURRENT = r"""
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
"""
RUN = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  smooth_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
CUDA = KERNEL + CURRENT + RUN
module = load_inline("smooth_rows", cuda_sources=CUDA, functions=["run"])


def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), y)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return compute(self, x)
