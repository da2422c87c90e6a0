# row: honest
# reference: honest/float8_outputs.py
# runs: both
# what: outputs of 8-bit floats with a scale for each block
# written: independently
import torch
import torch.nn as nn
from tvm_ffi.cpp import load_inline

SRC = r"""
#include <cuda_fp8.h>
#include <cstdint>
// a warp per block of 32 values
__global__ void quantize(const float* __restrict__ x, uint8_t* __restrict__ q, float* __restrict__ scales, int blocks) {
  int b = blockIdx.x * blockDim.y + threadIdx.y;
  if (b >= blocks) return;
  float v = x[(size_t)b * 32 + threadIdx.x], m = fabsf(v);
  for (int o = 16; o; o >>= 1) m = fmaxf(m, __shfl_xor_sync(~0u, m, o));
  float s = fmaxf(m, 1e-4f) / 448.f;
  if (threadIdx.x == 0) scales[b] = s;
  q[(size_t)b * 32 + threadIdx.x] = __nv_cvt_float_to_fp8(fminf(fmaxf(v / s, -448.f), 448.f), __NV_SATFINITE, __NV_E4M3);
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView q, tvm::ffi::TensorView s) {
  int blocks = (int)s.numel();
  auto st = (cudaStream_t)TVMFFIEnvGetStream(x.device().device_type, x.device().device_id);
  quantize<<<(blocks + 3) / 4, dim3(32, 4), 0, st>>>((const float*)x.data_ptr(), (uint8_t*)q.data_ptr(), (float*)s.data_ptr(), blocks);
}
"""
fp8 = load_inline("fp8_blockwise", cuda_sources=SRC, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        q = torch.empty_like(x, dtype=torch.float8_e4m3fn)
        s = x.new_empty(x.shape[0], x.shape[1] // 32)
        fp8.run(x, q.view(torch.uint8), s)
        return q, s
