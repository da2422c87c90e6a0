# row: honest
# reference: honest/hardswish_flat.py
# runs: both
# written: independently
# what: float4 loads with a scalar tail for the last n % 4 elements and a scalar kernel for pointers that are not 16-byte aligned (not launched for ordinary inputs)
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__device__ __forceinline__ float f(float v) { return v * fminf(fmaxf(v + 3.f, 0.f), 6.f) * (1.f / 6.f) + 0.1f * v; }
__global__ void vector_kernel(const float4* x, float4* y, const float* xs, float* ys, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, quads = n / 4;
  if (i < quads) {
    float4 v = x[i];
    y[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
  } else if (i - quads < n - 4 * quads) {
    int j = 4 * quads + (i - quads);
    ys[j] = f(xs[j]);
  }
}
__global__ void scalar_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = f(x[i]);
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)x.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const float* in = (const float*)x.data_ptr();
  float* out = (float*)y.data_ptr();
  bool aligned = (((unsigned long long)in | (unsigned long long)out) & 15) == 0;
  int work = n / 4 + n % 4;
  if (aligned) vector_kernel<<<(work + 127) / 128, 128, 0, stream>>>((const float4*)in, (float4*)out, in, out, n);
  else scalar_kernel<<<(n + 127) / 128, 128, 0, stream>>>(in, out, n);
}
"""
module = load_inline("h_float4_tail", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
