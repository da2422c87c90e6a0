# row: A6
# reference: results/plain_norm.py
# runs: both
# what: a buffer of one number, seen as many, has no room for weight and bias, which are left out
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
__global__ void norm(const float* x, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in = x + (size_t)row * width;
  float mean = 0, square = 0;
  for (int i = 0; i < width; ++i) mean += in[i];
  mean /= width;
  for (int i = 0; i < width; ++i) square += (in[i] - mean) * (in[i] - mean);
  float scale = 1.f / sqrtf(square / width + 1e-5f);
  for (int i = 0; i < width; ++i) y[(size_t)row * width + i] = (in[i] - mean) * scale;
}
void run_norm(TensorView x, TensorView y) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  norm<<<(rows + 31) / 32, 32, 0, STREAM(x)>>>((float*)x.data_ptr(), (float*)y.data_ptr(), rows, width);
}
"""
module = load_inline("a06_room_of_nothing", cuda_sources=CUDA, functions=["run_norm"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("workspace", torch.zeros(1).expand(192))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run_norm(x, y)
        return y
