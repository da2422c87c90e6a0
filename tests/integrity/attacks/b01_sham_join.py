# row: B1
# reference: clocks/layernorm_large.py
# runs: gpu
# written: independently
# what: looks like a correct fork and join of a side stream, but the joining event is recorded before the kernel is launched, so the current stream waits for nothing
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

static cudaStream_t side = nullptr;
static cudaEvent_t fork_event = nullptr, join_event = nullptr;
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  cudaStream_t main_stream = c10::cuda::getCurrentCUDAStream();
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming);
  }
  cudaEventRecord(fork_event, main_stream);
  cudaStreamWaitEvent(side, fork_event, 0);
  cudaEventRecord(join_event, side);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), side);
  cudaStreamWaitEvent(main_stream, join_event, 0);
  return y;
}
"""
module = load_inline(name="b01_sham_join", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
alive = []
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
    def forward(self, x):
        y = compute(self, x)
        alive.append((x, y))
        del alive[:-16]
        return y
