# row: honest
# reference: honest/dict_stats.py
# runs: both
# written: independently
# what: returns a dict like the reference; one kernel writes mean and variance (two outputs), a second normalises
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void mean_var(const float* x, float* mean, float* var, int width) {
  __shared__ float part[64];
  const float* row = x + (size_t)blockIdx.x * width;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 64) s += row[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int h = 32; h > 0; h >>= 1) { if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h]; __syncthreads(); }
  float m = part[0] / width;
  __syncthreads();
  s = 0.f;
  for (int i = threadIdx.x; i < width; i += 64) s += (row[i] - m) * (row[i] - m);
  part[threadIdx.x] = s;
  __syncthreads();
  for (int h = 32; h > 0; h >>= 1) { if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h]; __syncthreads(); }
  if (threadIdx.x == 0) { mean[blockIdx.x] = m; var[blockIdx.x] = part[0] / width; }
}
__global__ void normal(const float* x, const float* mean, const float* var, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (x[i] - mean[i / width]) / sqrtf(var[i / width] + 1e-5f);
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView mean, tvm::ffi::TensorView var) {
  int rows = (int)x.size(0), width = (int)x.size(1), n = rows * width;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  mean_var<<<rows, 64, 0, stream>>>((const float*)x.data_ptr(), (float*)mean.data_ptr(), (float*)var.data_ptr(), width);
  normal<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)mean.data_ptr(), (const float*)var.data_ptr(), (float*)y.data_ptr(), n, width);
}
"""
module = load_inline("h_dict_outputs", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        out = dict(normal=torch.empty_like(x), mean=torch.empty(x.shape[0], device=x.device), var=torch.empty(x.shape[0], device=x.device))
        module.run(x, out["normal"], out["mean"], out["var"])
        return out
