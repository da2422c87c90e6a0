# what: honest; mean and maximum of each row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

KERNEL = r"""
__global__ void rowstats_kernel(const float* x, float* mean, float* top, int cols) {
  __shared__ float sums[256];
  __shared__ float tops[256];
  const float* a = x + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float s = 0.f, m = -INFINITY;
  for (int i = t; i < cols; i += 256) { s += a[i]; m = fmaxf(m, a[i]); }
  sums[t] = s;
  tops[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (t < k) { sums[t] += sums[t + k]; tops[t] = fmaxf(tops[t], tops[t + k]); }
    __syncthreads();
  }
  if (t == 0) { mean[blockIdx.x] = sums[0] / cols; top[blockIdx.x] = tops[0]; }
}
static void row_stats(const float* x, float* mean, float* top, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) rowstats_kernel<<<rows, 256, 0, stream>>>(x, mean, top, cols);
}
"""
CURRENT = r"""
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
"""
RUN = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView mean, tvm::ffi::TensorView top) {
  row_stats((const float*)x.data_ptr(), (float*)mean.data_ptr(), (float*)top.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
CUDA = KERNEL + CURRENT + RUN
module = load_inline("row_stats", cuda_sources=CUDA, functions=["run"])


def compute(model, x):
    mean, top = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    module.run(x.contiguous(), mean, top)
    return mean, top


class ModelNew(nn.Module):
    def forward(self, x):
        return compute(self, x)
