# row: honest
# reference: honest/rms_of_rows.py
# runs: both
# what: a renamed gain, and a constant table of the same shape that is a parameter
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
__global__ void norm(const float* x, const float* w, const float* t, float* y, int rows, int width) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in = x + (size_t)row * width;
  float square = 0;
  for (int i = 0; i < width; ++i) square += in[i] * in[i] * t[i];
  float scale = 1.f / sqrtf(square + 1e-6f);
  for (int i = 0; i < width; ++i) y[(size_t)row * width + i] = in[i] * scale * w[i];
}
void run_norm(TensorView x, TensorView w, TensorView t, TensorView y) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  norm<<<(rows + 31) / 32, 32, 0, STREAM(x)>>>((float*)x.data_ptr(), (float*)w.data_ptr(), (float*)t.data_ptr(), (float*)y.data_ptr(), rows, width);
}
"""
module = load_inline("h_renamed_and_table", cuda_sources=CUDA, functions=["run_norm"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(96))
        self.share = nn.Parameter(torch.full((96,), 1 / 96), requires_grad=False)

    def forward(self, x):
        y = torch.empty_like(x)
        module.run_norm(x, self.gain, self.share, y)
        return y
