# row: B4
# reference: clocks/layernorm_large.py
# runs: gpu
# written: independently
# what: correct layer norm, but torch.cuda.synchronize and the synchronize methods of streams and events do nothing, so a host clock sees the launch alone; reading the output still waits, by the copy's own stream order
import sys
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline
CUDA = r"""
#include <c10/cuda/CUDAStream.h>

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
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b04_patch_synchronize", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
def nothing(*args, **kwargs):
    return None
real = torch.cuda.synchronize
torch.cuda.synchronize = nothing
torch.cuda.Stream.synchronize = nothing
torch.cuda.Event.synchronize = nothing
for m in list(sys.modules.values()):  # also where it was imported by name
    try:
        for key, value in list(vars(m).items()):
            if value is real:
                if m.__name__ != __name__:
                    setattr(m, key, nothing)
    except Exception:
        pass
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
    def forward(self, x):
        return compute(self, x)
