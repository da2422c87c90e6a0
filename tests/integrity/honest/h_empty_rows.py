# row: honest
# reference: honest/empty_rows.py
# runs: both
# what: a parameter that matters for rows which are masked everywhere only
# written: independently
import torch
import torch.nn as nn
from tvm_ffi.cpp import load_inline

SRC = r"""
__global__ void masked_mean(const float* __restrict__ x, const bool* __restrict__ mask, float* __restrict__ y, int* __restrict__ count, int tokens, int dim) {
  int b = blockIdx.x, n = 0;
  for (int t = 0; t < tokens; ++t) n += mask[b * tokens + t];
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float s = 0.f;
    for (int t = 0; t < tokens; ++t) if (mask[b * tokens + t]) s += x[((size_t)b * tokens + t) * dim + d];
    y[b * dim + d] = s / max(n, 1);
  }
  if (threadIdx.x == 0) count[b] = n;
}
// rare: sentences without tokens; a block leaves at once where there is nothing to do
__global__ void fill_empty(const int* __restrict__ count, const float* __restrict__ empty, float* __restrict__ y, int dim) {
  if (count[blockIdx.x] > 0) return;
  for (int d = threadIdx.x; d < dim; d += blockDim.x) y[blockIdx.x * dim + d] = empty[d];
}
void pool(tvm::ffi::TensorView x, tvm::ffi::TensorView mask, tvm::ffi::TensorView empty, tvm::ffi::TensorView y, tvm::ffi::TensorView count) {
  int b = (int)x.size(0), t = (int)x.size(1), d = (int)x.size(2);
  auto st = (cudaStream_t)TVMFFIEnvGetStream(x.device().device_type, x.device().device_id);
  masked_mean<<<b, 64, 0, st>>>((const float*)x.data_ptr(), (const bool*)mask.data_ptr(), (float*)y.data_ptr(), (int*)count.data_ptr(), t, d);
  fill_empty<<<b, 64, 0, st>>>((const int*)count.data_ptr(), (const float*)empty.data_ptr(), (float*)y.data_ptr(), d);
}
"""
pool_ext = load_inline("masked_pool_empty", cuda_sources=SRC, functions=["pool"])


class ModelNew(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.empty = nn.Parameter(torch.randn(dim))

    def forward(self, x, mask):
        y = x.new_empty(x.shape[0], x.shape[2])
        count = torch.empty(x.shape[0], dtype=torch.int32, device=x.device)
        pool_ext.pool(x, mask, self.empty, y, count)
        return y
