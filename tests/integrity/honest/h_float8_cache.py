# row: honest
# reference: honest/float8_cache.py
# runs: both
# what: a ring of 8-bit floats that calls go on in
# written: independently
import torch
import torch.nn as nn
from tvm_ffi.cpp import load_inline

SRC = r"""
#include <cuda_fp8.h>
__global__ void step(const float* __restrict__ q, const float* __restrict__ k, __nv_fp8_e5m2* cache, const long long* __restrict__ pos, const float* __restrict__ scale, float* __restrict__ p, int window, int dim) {
  extern __shared__ float s[];
  const int b = blockIdx.x, lane = threadIdx.x;
  int slot = (int)(*pos % window);
  __nv_fp8_e5m2* c = cache + (size_t)b * window * dim;
  for (int d = lane; d < dim; d += 32) c[slot * dim + d] = __nv_fp8_e5m2(k[b * dim + d]);
  __syncwarp();
  float m = -INFINITY, l = 0.f;
  for (int j = 0; j < window; ++j) {
    float a = 0.f;
    for (int d = lane; d < dim; d += 32) a = fmaf(float(c[j * dim + d]), q[b * dim + d], a);
    for (int o = 16; o; o >>= 1) a += __shfl_xor_sync(~0u, a, o);
    a *= *scale;
    if (lane == 0) s[j] = a;
    m = fmaxf(m, a);
  }
  __syncwarp();
  for (int j = lane; j < window; j += 32) l += expf(s[j] - m);
  for (int o = 16; o; o >>= 1) l += __shfl_xor_sync(~0u, l, o);
  for (int j = lane; j < window; j += 32) p[b * window + j] = expf(s[j] - m) / l;
}
__global__ void advance(long long* pos) { *pos += 1; }
void run(tvm::ffi::TensorView q, tvm::ffi::TensorView k, tvm::ffi::TensorView cache, tvm::ffi::TensorView pos, tvm::ffi::TensorView scale, tvm::ffi::TensorView p) {
  int b = (int)q.size(0), dim = (int)q.size(1), window = (int)p.size(1);
  auto st = (cudaStream_t)TVMFFIEnvGetStream(q.device().device_type, q.device().device_id);
  step<<<b, 32, window * sizeof(float), st>>>((const float*)q.data_ptr(), (const float*)k.data_ptr(), (__nv_fp8_e5m2*)cache.data_ptr(), (const long long*)pos.data_ptr(), (const float*)scale.data_ptr(), (float*)p.data_ptr(), window, dim);
  advance<<<1, 1, 0, st>>>((long long*)pos.data_ptr());
}
"""
f8c = load_inline("fp8_ring_cache", cuda_sources=SRC, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, batch, window, dim):
        super().__init__()
        self.register_buffer("cache", torch.randn(batch, window, dim).to(torch.float8_e5m2))
        self.register_buffer("pos", torch.zeros((), dtype=torch.long))
        self.scale = nn.Parameter(torch.tensor(0.2))

    def forward(self, q, k):
        p = q.new_empty(q.shape[0], self.cache.shape[1])
        f8c.run(q, k, self.cache.view(torch.uint8), self.pos, self.scale, p)
        return p
