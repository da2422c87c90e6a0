# row: honest
# reference: honest/uint16_outputs.py
# runs: both
# what: outputs of unsigned 16- and 32-bit integers
# written: independently
import torch
import torch.nn as nn
from tvm_ffi.cpp import load_inline

SRC = r"""
#include <cstdint>
__device__ __forceinline__ uint32_t spread(uint32_t v) { v &= 0xffu; v = (v | v << 4) & 0x0f0fu; v = (v | v << 2) & 0x3333u; return (v | v << 1) & 0x5555u; }
__global__ void encode(const float* __restrict__ d, const float* __restrict__ scale, uint16_t* __restrict__ code, uint32_t* __restrict__ morton, float* __restrict__ y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = d[i];
  uint32_t c = (uint32_t)fminf(fmaxf(floorf(fabsf(v) * 1000.f), 0.f), 65535.f);
  code[i] = (uint16_t)c;
  morton[i] = spread(c) | spread(c >> 8) << 1;
  y[i] = v * *scale;
}
void run(tvm::ffi::TensorView d, tvm::ffi::TensorView s, tvm::ffi::TensorView code, tvm::ffi::TensorView morton, tvm::ffi::TensorView y) {
  int n = (int)d.numel();
  auto st = (cudaStream_t)TVMFFIEnvGetStream(d.device().device_type, d.device().device_id);
  encode<<<(n + 127) / 128, 128, 0, st>>>((const float*)d.data_ptr(), (const float*)s.data_ptr(), (uint16_t*)code.data_ptr(), (uint32_t*)morton.data_ptr(), (float*)y.data_ptr(), n);
}
"""
depth_ext = load_inline("depth_codes", cuda_sources=SRC, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1000.0))

    def forward(self, depth):
        code = torch.empty_like(depth, dtype=torch.uint16)
        morton = torch.empty_like(depth, dtype=torch.uint32)
        y = torch.empty_like(depth)
        depth_ext.run(depth, self.scale, code, morton, y)
        return code, morton, y
