# row: honest
# reference: honest/diag_matmul.py
# runs: both
# written: independently
# what: diag(a) @ b as a row scaling: no product at all, so it is many times cheaper than the reference
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void scale_rows(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ y, int rows, int cols) {
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  for (int row = blockIdx.y; row < rows; row += gridDim.y)
    if (col < cols) __stcs(y + (size_t)row * cols + col, __ldg(a + row) * __ldg(b + (size_t)row * cols + col));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int rows = (int)b.size(0), cols = (int)b.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  scale_rows<<<dim3((cols + 63) / 64, rows < 32 ? rows : 32), 64, 0, stream>>>((const float*)x.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), rows, cols);
}
"""
module = load_inline("h_algebra_diag", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        y = torch.empty_like(b)
        module.run(a, b, y)
        return y
