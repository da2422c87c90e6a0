# row: honest
# reference: honest/mask_bool.py
# runs: both
# written: independently
# what: boolean output written as bytes by the kernel
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void mask(const float* x, const float* y, bool* out, int n, float threshold) {
  int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) out[i] = x[i] > threshold && y[i] <= x[i];
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView out, double threshold) {
  int n = (int)x.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  mask<<<32, 128, 0, stream>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(), (bool*)out.data_ptr(), n, (float)threshold);
}
"""
module = load_inline("h_bool_mask", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, threshold):
        super().__init__()
        self.threshold = threshold

    def forward(self, x, y):
        out = torch.empty(x.shape, dtype=torch.bool, device=x.device)
        module.run(x, y, out, self.threshold)
        return out
