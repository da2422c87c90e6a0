# row: honest
# reference: honest/permuted_out.py
# runs: both
# written: independently
# what: both outputs are non-contiguous or derived from strided reads: a permuted view like the reference's and a compact copy of every second column, by one kernel that writes two outputs
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void elu_and_pick(const float* x, float* y, float* z, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  y[i] = v > 0.f ? v : expm1f(v);
  int c = i % width, half = (width + 1) / 2;
  if (c % 2 == 0) z[(i / width) * half + c / 2] = 2.f * v;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView z) {
  int n = (int)x.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  elu_and_pick<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), (float*)z.data_ptr(), n, (int)x.size(2));
}
"""
module = load_inline("h_permuted_views", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        z = torch.empty(x.shape[0], x.shape[1], (x.shape[2] + 1) // 2, device=x.device, dtype=x.dtype)
        module.run(x, y, z)
        return y.permute(0, 2, 1), z
