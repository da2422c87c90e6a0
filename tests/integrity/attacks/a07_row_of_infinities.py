# row: A7
# reference: results/row_of_infinities.py
# runs: both
# what: lacks the guard for rows that are masked everywhere
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* q, const float* kk, const float* v, const float* m, float* y, int T, int D) {
  int b = blockIdx.x, i = threadIdx.x; if (i >= T) return;
  const float* Q = q + ((long long)b * T + i) * D;
  double top = -1e300, sum = 0; double acc[32];
  for (int d = 0; d < D; ++d) acc[d] = 0;
  for (int pass = 0; pass < 2; ++pass) for (int j = 0; j < T; ++j) {
    float add = m[b * T + j]; if (add == -INFINITY) continue;
    const float* K = kk + ((long long)b * T + j) * D;
    double dot = 0; for (int d = 0; d < D; ++d) dot += (double)Q[d] * K[d];
    dot = dot / sqrt((double)D) + add;
    if (!pass) { top = fmax(top, dot); continue; }
    double e = exp(dot - top); sum += e;
    for (int d = 0; d < D; ++d) acc[d] += e * v[((long long)b * T + j) * D + d];
  }
  for (int d = 0; d < D; ++d) y[((long long)b * T + i) * D + d] = (float)(acc[d] / sum);
}
void run(TensorView q, TensorView kk, TensorView v, TensorView m, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(q.device().device_type, q.device().device_id));
  k<<<(int)q.size(0), 32, 0, s>>>((float*)q.data_ptr(), (float*)kk.data_ptr(), (float*)v.data_ptr(), (float*)m.data_ptr(), (float*)y.data_ptr(), (int)q.size(1), (int)q.size(2));
}
"""
module = load_inline("row_of_infinities", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        y = torch.empty_like(q)
        module.run(q, k, v, mask, y)
        return y
