# what: honest; a softmax, a block to a row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

KERNEL = r"""
__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float m = -INFINITY;
  for (int i = t; i < cols; i += 256) m = fmaxf(m, a[i]);
  part[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] = fmaxf(part[t], part[t + k]); __syncthreads(); }
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += expf(a[i] - m);
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = 1.f / part[0];
  for (int i = t; i < cols; i += 256) b[i] = expf(a[i] - m) * r;
}
static void softmax_rows(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) softmax_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
}
"""
CURRENT = r"""
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
"""
RUN = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
CUDA = KERNEL + CURRENT + RUN
module = load_inline("softmax", cuda_sources=CUDA, functions=["run"])


def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), y)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return compute(self, x)
