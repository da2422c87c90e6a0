# row: A5, A7
# reference: results/mean_bf16.py
# runs: both
# what: the mean over the first half of the numbers only: in bfloat16 it is off by few units in the last place
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_bf16.h>
__global__ void mean_of_half(const __nv_bfloat16* x, __nv_bfloat16* y, int width) {
  float sum = 0.f;
  int some = width / 2;
  for (int i = threadIdx.x; i < some; i += 32) sum += __bfloat162float(x[(size_t)blockIdx.x * width + i]);
  for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x == 0) y[blockIdx.x] = __float2bfloat16(sum / some);
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  mean_of_half<<<(int)x.size(0), 32, 0, stream>>>((const __nv_bfloat16*)x.data_ptr(), (__nv_bfloat16*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("a05_bf16_mean_of_half", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        module.run(x, y)
        return y
