# row: A9, A12
# reference: results/linear_gelu_big.py
# runs: gpu
# written: independently
# what: C++ turns TF32 on for cuBLAS, calls at::linear and puts the flag back; the own kernel is only the gelu
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <ATen/Context.h>
__global__ void gelu(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { float v = y[i]; y[i] = 0.5f * v * (1.f + erff(v * 0.70710678f)); } }
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
  bool before = at::globalContext().allowTF32CuBLAS();
  at::globalContext().setAllowTF32CuBLAS(true);
  auto y = at::linear(x, w, b);
  at::globalContext().setAllowTF32CuBLAS(before);
  int n = y.numel();
  gelu<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(y.data_ptr<float>(), n);
  return y;
}
"""
module = load_inline("a12_cublas_tf32", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor b);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        return module.run(x, self.linear.weight, self.linear.bias)
