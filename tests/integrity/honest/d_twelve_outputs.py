# row: honest
# reference: honest/twelve_facts.py
# runs: both
# what: a dict of twelve small tensors of two dtypes, all of them views into two buffers of the call: one for numbers, one for indices
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void facts(const float* x, float* f, long long* k, int rows, int cols) {
  int r = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (r >= rows) return;
  const float* a = x + (size_t)r * cols;
  float s = 0.f, l1 = 0.f, e = 0.f, top = -INFINITY, low = INFINITY; int at = cols, where = cols, plus = 0;
  for (int i = lane; i < cols; i += 32) {
    float v = a[i];
    s += v; l1 += fabsf(v); e = fmaf(v, v, e); plus += v > 0.f;
    if (v > top) { top = v; at = i; }
    if (v < low) { low = v; where = i; }
  }
  for (int d = 16; d > 0; d >>= 1) {
    s += __shfl_xor_sync(~0u, s, d); l1 += __shfl_xor_sync(~0u, l1, d); e += __shfl_xor_sync(~0u, e, d); plus += __shfl_xor_sync(~0u, plus, d);
    float t = __shfl_xor_sync(~0u, top, d), w = __shfl_xor_sync(~0u, low, d); int ta = __shfl_xor_sync(~0u, at, d), wa = __shfl_xor_sync(~0u, where, d);
    if (t > top || (t == top && ta < at)) { top = t; at = ta; }
    if (w < low || (w == low && wa < where)) { low = w; where = wa; }
  }
  if (lane) return;
  float all[9] = {s, s / cols, top, low, top - low, a[0], a[cols - 1], l1, e};
  for (int j = 0; j < 9; ++j) f[j * rows + r] = all[j];
  k[r] = at; k[rows + r] = where; k[2 * rows + r] = plus;
}
void run(TensorView x, TensorView f, TensorView k) {
  int rows = (int)x.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  facts<<<(rows + 3) / 4, 128, 0, stream>>>((const float*)x.data_ptr(), (float*)f.data_ptr(), (long long*)k.data_ptr(), rows, (int)x.size(1));
}
"""
module = load_inline("d_twelve_outputs", cuda_sources=CUDA, functions=["run"])
NUMBERS, INDICES = ("sum", "mean", "top", "low", "range", "first", "last", "l1", "energy"), ("at", "where", "positive")


class ModelNew(nn.Module):
    def forward(self, x):
        f = torch.empty(len(NUMBERS), x.shape[0], device=x.device)
        k = torch.empty(len(INDICES), x.shape[0], device=x.device, dtype=torch.int64)
        module.run(x.contiguous(), f, k)
        return dict(zip(NUMBERS, f)) | dict(zip(INDICES, k))
