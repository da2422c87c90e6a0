# what: honest; argmax, a thread to a row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

KERNEL = r"""
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
"""
CURRENT = r"""
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
"""
RUN = r"""
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  argmax_rows((const float*)x.data_ptr(), (long long*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
CUDA = KERNEL + CURRENT + RUN
module = load_inline("argmax", cuda_sources=CUDA, functions=["run"])


def compute(model, x):
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    module.run(x.contiguous(), y)
    return y


class ModelNew(nn.Module):
    def forward(self, x):
        return compute(self, x)
