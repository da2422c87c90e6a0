# row: honest
# reference: honest/swish.py
# runs: both
# what: its kernel stands behind an operator that it registers with torch.library, as torch's tutorial has it
import torch, torch.nn as nn, torch.nn.functional as F
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
module = load_inline("h_custom_operator", cuda_sources=CUDA, functions=["swish_run"])
@torch.library.custom_op("mylib::swish", mutates_args=())
def swish(x: torch.Tensor) -> torch.Tensor:
    x = x.contiguous()
    y = torch.empty_like(x)
    module.swish_run(x, y)
    return y
@swish.register_fake
def _(x):
    return torch.empty_like(x)
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return torch.ops.mylib.swish(x)
