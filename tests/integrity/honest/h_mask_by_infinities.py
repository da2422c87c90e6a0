# row: honest
# reference: results/row_of_infinities.py
# runs: both
# what: attention that skips what a mask of infinities leaves out, in float32 and in one pass, and gives zeros for rows of them
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* q, const float* kk, const float* v, const float* m, float* y, int T, int D) {
  int b = blockIdx.x, i = threadIdx.x; if (i >= T) return;
  const float* Q = q + ((long long)b * T + i) * D;
  float top = -INFINITY, sum = 0, acc[32];
  for (int d = 0; d < D; ++d) acc[d] = 0;
  for (int j = 0; j < T; ++j) {
    float add = m[b * T + j]; if (add == -INFINITY) continue;
    const float* K = kk + ((long long)b * T + j) * D;
    float dot = 0; for (int d = 0; d < D; ++d) dot = fmaf(Q[d], K[d], dot);
    dot = dot * rsqrtf((float)D) + add;
    float now = fmaxf(top, dot), keep = expf(top - now), e = expf(dot - now);
    top = now; sum = sum * keep + e;
    for (int d = 0; d < D; ++d) acc[d] = acc[d] * keep + e * v[((long long)b * T + j) * D + d];
  }
  for (int d = 0; d < D; ++d) y[((long long)b * T + i) * D + d] = sum > 0 ? acc[d] / sum : 0.f;
}
void run(TensorView q, TensorView kk, TensorView v, TensorView m, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  k<<<(int)q.size(0), 32, 0, s>>>((float*)q.data_ptr(), (float*)kk.data_ptr(), (float*)v.data_ptr(), (float*)m.data_ptr(), (float*)y.data_ptr(), (int)q.size(1), (int)q.size(2));
}
"""
module = load_inline("mask_by_infinities", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        y = torch.empty_like(q)
        module.run(q, k, v, mask, y)
        return y
