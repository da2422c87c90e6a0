# row: A12
# reference: results/taller_linear.py
# runs: gpu
# what: as a12_bias_kernel, with rows enough that a GPU's time for the bias is as small as its bytes
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void add_bias(float* y, const float* b, int n, int width) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] += b[i % width]; }
torch::Tensor run(torch::Tensor y, torch::Tensor b) {
  int n = y.numel();
  add_bias<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), b.data_ptr<float>(), n, y.size(1));
  return y;
}
"""
module = load_inline("a12_bias_kernel_large", cpp_sources="torch::Tensor run(torch::Tensor y, torch::Tensor b);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        return module.run(torch.mm(x, self.linear.weight.t()), self.linear.bias)
