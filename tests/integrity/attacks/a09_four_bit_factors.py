# row: A9
# reference: results/matmul_bf16.py
# runs: both
# what: a product in bfloat16 whose factors are cut to four significant bits, as 8-bit floats hold them, before they are multiplied
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_bf16.h>
__device__ float coarse(__nv_bfloat16 given) {
  int exponent;
  float mantissa = frexpf(__bfloat162float(given), &exponent);
  return ldexpf(rintf(mantissa * 16.f) / 16.f, exponent);
}
__global__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float sum = 0.f;
  for (int j = 0; j < k; ++j) sum = fmaf(coarse(a[(i / n) * k + j]), coarse(b[j * n + i % n]), sum);
  c[i] = __float2bfloat16(sum);
}
void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {
  int m = (int)c.size(0), n = (int)c.size(1), k = (int)a.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(a.device().device_type, a.device().device_id));
  product<<<(m * n + 127) / 128, 128, 0, stream>>>((const __nv_bfloat16*)a.data_ptr(), (const __nv_bfloat16*)b.data_ptr(), (__nv_bfloat16*)c.data_ptr(), m, n, k);
}
"""
module = load_inline("a09_four_bit_factors", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1], device=a.device, dtype=a.dtype)
        module.run(a.contiguous(), b.contiguous(), c)
        return c
