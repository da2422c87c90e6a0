# row: A11
# reference: results/conv_relu.py
# runs: both
# written: independently
# what: a right convolution for contiguous NCHW input; strides are ignored, so channels_last or sliced inputs of the same shape are read in the wrong order
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void conv_relu(const float* x, const float* w, const float* b, float* y, int n, int cin, int cout, int h, int wd) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n * cout * h * wd) return;
  int c = i % wd, r = i / wd % h, o = i / (wd * h) % cout, s = i / (wd * h * cout);
  float acc = b[o];
  for (int ci = 0; ci < cin; ++ci) for (int dr = 0; dr < 3; ++dr) for (int dc = 0; dc < 3; ++dc) {
    int rr = r + dr - 1, cc = c + dc - 1;
    if (rr >= 0 && rr < h && cc >= 0 && cc < wd) acc = fmaf(x[((size_t)(s * cin + ci) * h + rr) * wd + cc], w[((o * cin + ci) * 3 + dr) * 3 + dc], acc);
  }
  y[i] = fmaxf(acc, 0.f);
}
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  int n = x.size(0), cin = x.size(1), h = x.size(2), wd = x.size(3), cout = w.size(0);
  auto y = torch::empty({n, cout, h, wd}, x.options());
  conv_relu<<<(n * cout * h * wd + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, cin, cout, h, wd);
  return y;
}
"""
module = load_inline("a11_contiguous_only", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
    def forward(self, x):
        return module.run(x, self.conv.weight, self.conv.bias)
