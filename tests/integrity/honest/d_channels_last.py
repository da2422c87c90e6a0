# row: honest
# reference: honest/channels_last_out.py
# runs: both
# what: two outputs that are not contiguous, in the reference's layouts: channels innermost, and a transposed view of a dense result
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void hardswish(const float* x, float* y, float* last, int n, int channels, int plane) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i] * fminf(fmaxf(x[i] + 3.f, 0.f), 6.f) / 6.f;
  int image = i / (channels * plane), c = i / plane % channels, at = i % plane;
  y[i] = v;
  last[((size_t)image * plane + at) * channels + c] = v;
}
void run(TensorView x, TensorView y, TensorView last) {
  int channels = (int)x.size(1), plane = (int)(x.size(2) * x.size(3)), n = (int)x.size(0) * channels * plane;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  hardswish<<<(n + 127) / 128, 128, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), (float*)last.data_ptr(), n, channels, plane);
}
"""
module = load_inline("d_channels_last", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y, last = torch.empty_like(x), torch.empty_like(x, memory_format=torch.channels_last)
        module.run(x, y, last.permute(0, 2, 3, 1))
        return last, y.transpose(1, 3)
