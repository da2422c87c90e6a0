# row: honest
# reference: honest/rms_bf16.py
# runs: both
# what: RMS norm in bfloat16 that rounds wherever the reference's operators round, its sum in another order
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_bf16.h>
__device__ float kept(float v) { return __bfloat162float(__float2bfloat16(v)); }
__global__ void rms(const __nv_bfloat16* x, const __nv_bfloat16* w, __nv_bfloat16* y, int width) {
  const __nv_bfloat16* row = x + (size_t)blockIdx.x * width;
  float sum = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) { float v = __bfloat162float(row[i]); sum += kept(v * v); }
  for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  float scale = kept(rsqrtf(kept(kept(sum / width) + 1e-6f)));
  for (int i = threadIdx.x; i < width; i += 32)
    y[(size_t)blockIdx.x * width + i] = __float2bfloat16(kept(__bfloat162float(row[i]) * scale) * __bfloat162float(w[i]));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView y) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  rms<<<(int)x.size(0), 32, 0, stream>>>((const __nv_bfloat16*)x.data_ptr(), (const __nv_bfloat16*)w.data_ptr(), (__nv_bfloat16*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("h_bf16_rounded_as_eager", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=torch.bfloat16))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        module.run(x, self.weight, y)
        return y
