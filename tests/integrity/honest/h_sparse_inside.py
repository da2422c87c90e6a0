# row: honest
# reference: honest/sparse_product.py
# runs: both
# what: multiplies by a sparse matrix as the reference does and does the rest in a kernel of its own
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void swish(const float* a, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = a[i]; y[i] = v / (1.f + expf(-v)); }
}
void swish_run(tvm::ffi::TensorView a, tvm::ffi::TensorView y) {
  int n = (int)a.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  swish<<<(n + 255) / 256, 256, 0, stream>>>((const float*)a.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("h_sparse_inside", cuda_sources=CUDA, functions=["swish_run"])
class ModelNew(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.lin = nn.Linear(d, d)
    def forward(self, x, adj):
        h = torch.sparse.mm(adj.to_sparse(), self.lin(x)).contiguous()
        y = torch.empty_like(h)
        module.swish_run(h, y)
        return y
