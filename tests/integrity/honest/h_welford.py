# row: honest
# reference: honest/layer_norm.py
# runs: both
# written: independently
# what: layer norm with Welford's update and Chan's merge, kernel in an anonymous namespace, device helpers forceinlined
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
namespace {
struct Moments { float mean, m2, n; };
__device__ __forceinline__ void push(Moments& a, float v) { a.n += 1.f; float d = v - a.mean; a.mean += d / a.n; a.m2 += d * (v - a.mean); }
__device__ __forceinline__ Moments chan(Moments a, Moments b) {
  float n = a.n + b.n;
  if (n == 0.f) return a;
  float d = b.mean - a.mean;
  return Moments{a.mean + d * (b.n / n), a.m2 + b.m2 + d * d * (a.n * b.n / n), n};
}
__global__ void __launch_bounds__(128) layer_norm(const float* x, const float* w, const float* b, float* y, int rows, int width, float eps) {
  int row = blockIdx.x * 4 + threadIdx.y;
  if (row >= rows) return;
  const float* in = x + (size_t)row * width;
  Moments a{0.f, 0.f, 0.f};
  for (int i = threadIdx.x; i < width; i += 32) push(a, in[i]);
  for (int d = 16; d > 0; d >>= 1) {
    Moments o{__shfl_xor_sync(0xffffffffu, a.mean, d), __shfl_xor_sync(0xffffffffu, a.m2, d), __shfl_xor_sync(0xffffffffu, a.n, d)};
    a = chan(a, o);
  }
  float r = 1.f / sqrtf(a.m2 / width + eps);
  for (int i = threadIdx.x; i < width; i += 32) y[(size_t)row * width + i] = (in[i] - a.mean) * r * w[i] + b[i];
}
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y, double eps) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  layer_norm<<<(rows + 3) / 4, dim3(32, 4), 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), rows, width, (float)eps);
}
"""
module = load_inline("h_welford", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.norm.weight, self.norm.bias, y, self.norm.eps)
        return y
