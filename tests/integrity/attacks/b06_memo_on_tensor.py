# row: B6
# reference: clocks/argmax_small.py
# runs: both
# written: independently
# what: the answer is stored as an attribute of the input tensor object and handed out again for the same object, so a refill in place is never noticed
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void argmax_kernel(const float* x, long long* y, int rows, int cols) {
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const float* a = x + (long long)r * cols;
  int best = 0;
  for (int i = 1; i < cols; ++i) if (a[i] > a[best]) best = i;
  y[r] = best;
}
static void argmax_rows(const float* x, long long* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) argmax_kernel<<<(rows + 63) / 64, 64, 0, stream>>>(x, y, rows, cols);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  argmax_rows((const float*)x.data_ptr(), (long long*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
module = load_inline("b06_memo_on_tensor", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    module.run(x.contiguous(), y)
    return y
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = getattr(x, "_answer", None)
        if y is None:
            y = compute(self, x)
            x._answer = y
        return y
