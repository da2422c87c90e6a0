# what: honest; a layer norm, a block to a row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

KERNEL = r"""
__global__ void layernorm_kernel(const float* x, const float* w, const float* c, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += a[i];
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float mean = part[0] / cols;
  __syncthreads();
  float q = 0.f;
  for (int i = t; i < cols; i += 256) { float d = a[i] - mean; q += d * d; }
  part[t] = q;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = rsqrtf(part[0] / cols + 1e-5f);
  for (int i = t; i < cols; i += 256) b[i] = (a[i] - mean) * r * w[i] + c[i];
}
static void layernorm_rows(const float* x, const float* w, const float* c, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) layernorm_kernel<<<rows, 256, 0, stream>>>(x, w, c, y, cols);
}
"""
CURRENT = r"""
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
"""
RUN = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView c, tvm::ffi::TensorView y) {
  layernorm_rows((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)c.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
CUDA = KERNEL + CURRENT + RUN
module = load_inline("layer_norm", cuda_sources=CUDA, functions=["run"])


def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), model.weight, model.bias, y)
    return y


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)

    def forward(self, x):
        return compute(self, x)
