# row: honest
# reference: honest/sparse_product.py
# runs: both
# what: multiplies by a sparse matrix as the reference does and does the layer after it in a kernel of its own
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void linear_swish(const float* x, const float* w, const float* b, float* y, int rows, int d) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / d, out = i % d;
  if (row >= rows) return;
  float sum = b[out];
  for (int k = 0; k < d; ++k) sum = fmaf(x[row * d + k], w[out * d + k], sum);
  y[i] = sum / (1.f + expf(-sum));
}
void linear_swish_run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int rows = (int)x.size(0), d = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  linear_swish<<<(rows * d + 127) / 128, 128, 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(),
                                                           (const float*)b.data_ptr(), (float*)y.data_ptr(), rows, d);
}
"""
module = load_inline("h_sparse_inside", cuda_sources=CUDA, functions=["linear_swish_run"])
class ModelNew(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
    def forward(self, x, adj):
        h = torch.sparse.mm(adj.to_sparse(), x).contiguous()
        y = torch.empty_like(h)
        module.linear_swish_run(h, self.lin.weight, self.lin.bias, y)
        return y
