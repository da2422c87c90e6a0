# row: A9
# reference: results/mlp.py
# runs: both
# written: independently
# what: fp32 products and sums, but the hidden activations are stored as fp16 between the two layers
import torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
__global__ void layer1(const float* x, const float* w, const float* b, __half* h, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m * n) return;
  float acc = b[i % n]; for (int j = 0; j < k; ++j) acc = fmaf(x[(size_t)(i / n) * k + j], w[(size_t)(i % n) * k + j], acc);
  h[i] = __float2half(fmaxf(acc, 0.f));
}
__global__ void layer2(const __half* h, const float* w, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= m * n) return;
  float acc = b[i % n]; for (int j = 0; j < k; ++j) acc = fmaf(__half2float(h[(size_t)(i / n) * k + j]), w[(size_t)(i % n) * k + j], acc);
  y[i] = acc;
}
torch::Tensor run(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2) {
  int m = x.size(0), k = x.size(1), hid = w1.size(0), n = w2.size(0);
  auto h = torch::empty({m, hid}, x.options().dtype(torch::kHalf)); auto y = torch::empty({m, n}, x.options());
  auto stream = c10::cuda::getCurrentCUDAStream();
  layer1<<<(m * hid + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), w1.data_ptr<float>(), b1.data_ptr<float>(), (__half*)h.data_ptr(), m, hid, k);
  layer2<<<(m * n + 255) / 256, 256, 0, stream>>>((const __half*)h.data_ptr(), w2.data_ptr<float>(), b2.data_ptr<float>(), y.data_ptr<float>(), m, n, hid);
  return y;
}
"""
module = load_inline("a09_half_activation", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w1, torch::Tensor b1, torch::Tensor w2, torch::Tensor b2);", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, k, h, n):
        super().__init__()
        self.fc1 = nn.Linear(k, h)
        self.fc2 = nn.Linear(h, n)
    def forward(self, x):
        return module.run(x, self.fc1.weight, self.fc1.bias, self.fc2.weight, self.fc2.bias)
