# row: honest
# reference: honest/tuple_view.py
# runs: both
# written: independently
# what: three outputs of which two are views (a slice and a transpose) of the first, exactly as in the reference
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void tanh_times(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = tanhf(x[i]) * x[i];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)x.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  tanh_times<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("h_tuple_view", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y, y[:, :16], y.t()
