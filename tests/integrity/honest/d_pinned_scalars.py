# row: honest
# reference: honest/clamped_gain.py
# runs: both
# what: its two scalar arguments lie in pinned host memory and are copied to the device in each call without waiting, so that they can be changed between calls
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void limited(const float* x, const float* scalars, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = scalars[1] * tanhf(x[i] / scalars[0]) * scalars[0];
}
void run(TensorView x, TensorView scalars, TensorView y) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  limited<<<(n + 127) / 128, 128, 0, stream>>>((const float*)x.data_ptr(), (const float*)scalars.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("d_pinned_scalars", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, limit, gain):
        super().__init__()
        self._scalars = torch.tensor([limit, gain], device="cpu").pin_memory()

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self._scalars.to(x.device, non_blocking=True), y)
        return y
