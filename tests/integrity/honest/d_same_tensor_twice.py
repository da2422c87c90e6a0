# row: honest
# reference: honest/same_twice.py
# runs: both
# what: returns one tensor object twice, and the row means as an expanded view with stride 0, as the reference does
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void cell(const float* x, const float* h, const float* scale, float* y, float* mean, int cols) {
  __shared__ float part[64];
  const size_t row = (size_t)blockIdx.x * cols;
  float s = 0.f;
  for (int i = threadIdx.x; i < cols; i += 64) { float v = tanhf(fmaf(x[row + i], scale[i], h[row + i])); y[row + i] = v; s += v; }
  part[threadIdx.x] = s;
  __syncthreads();
  for (int k = 32; k > 0; k >>= 1) { if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k]; __syncthreads(); }
  if (threadIdx.x == 0) mean[blockIdx.x] = part[0] / cols;
}
void run(TensorView x, TensorView h, TensorView scale, TensorView y, TensorView mean) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  cell<<<(int)x.size(0), 64, 0, stream>>>((const float*)x.data_ptr(), (const float*)h.data_ptr(), (const float*)scale.data_ptr(), (float*)y.data_ptr(), (float*)mean.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("d_same_tensor_twice", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x, h):
        y, mean = torch.empty_like(x), torch.empty(x.shape[0], 1, device=x.device)
        module.run(x, h, self.scale, y, mean)
        return y, y, mean.expand_as(y)
