# what: honest; the mean of all calls so far is taken off, half of the last call's first row added
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

COUNT = "seen[0] + 1"
LAST = "last[i]"
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void moving(const float* x, const long long* seen, float* mean, float* last, float* y, int rows, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  float sum = 0;
  for (int r = 0; r < rows; ++r) sum += x[r * width + i];
  float m = mean[i] + (sum / rows - mean[i]) / (COUNT), half = 0.5f * LAST;
  for (int r = 0; r < rows; ++r) y[r * width + i] = tanhf(x[r * width + i] - m + half);
  mean[i] = m;
  last[i] = x[i];
}
void run(TensorView x, TensorView seen, TensorView mean, TensorView last, TensorView y) {
  int rows = (int)x.size(0), width = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  moving<<<(width + 31) / 32, 32, 0, stream>>>((float*)x.data_ptr(), (long long*)seen.data_ptr(), (float*)mean.data_ptr(),
                                               (float*)last.data_ptr(), (float*)y.data_ptr(), rows, width);
}
""".replace("COUNT", COUNT).replace("LAST", LAST)
module = load_inline("moving_mean", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("last", torch.zeros(width), persistent=False)

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.seen, self.mean, self.last, y)
        self.seen += 1
        return y
