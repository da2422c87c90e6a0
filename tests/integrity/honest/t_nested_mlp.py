# row: honest
# reference: honest/mlp.py
# runs: both
# written: independently
# what: nested submodules with the reference's state dict; layer norm, bias + silu and bias + residual are own kernels, products are torch.mm
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CPP = """
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);
torch::Tensor bias_silu_(torch::Tensor h, torch::Tensor b);
torch::Tensor bias_residual(torch::Tensor h, torch::Tensor b, torch::Tensor x);
torch::Tensor bias_(torch::Tensor h, torch::Tensor b);
"""
CUDA = r"""
#include <c10/cuda/CUDAStream.h>
__global__ void layer_norm_kernel(const float* x, const float* w, const float* b, float* y, int width, float eps) {
  const float* in = x + (size_t)blockIdx.x * width;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) s += in[i];
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  float m = s / width, q = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) q += (in[i] - m) * (in[i] - m);
  for (int d = 16; d > 0; d >>= 1) q += __shfl_xor_sync(0xffffffffu, q, d);
  float r = 1.f / sqrtf(q / width + eps);
  for (int i = threadIdx.x; i < width; i += 32) y[(size_t)blockIdx.x * width + i] = (in[i] - m) * r * w[i] + b[i];
}
__global__ void bias_silu_kernel(float* h, const float* b, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = h[i] + b[i % width]; h[i] = v / (1.f + expf(-v)); }
}
__global__ void bias_residual_kernel(const float* h, const float* b, const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = h[i] + b[i % width] + x[i];
}
__global__ void bias_kernel(float* h, const float* b, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) h[i] += b[i % width];
}
torch::Tensor layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
  auto y = torch::empty_like(x);
  layer_norm_kernel<<<x.size(0), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.size(1), (float)eps);
  return y;
}
torch::Tensor bias_silu_(torch::Tensor h, torch::Tensor b) {
  int n = h.numel();
  bias_silu_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(h.data_ptr<float>(), b.data_ptr<float>(), n, h.size(1));
  return h;
}
torch::Tensor bias_residual(torch::Tensor h, torch::Tensor b, torch::Tensor x) {
  auto y = torch::empty_like(h);
  int n = h.numel();
  bias_residual_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(h.data_ptr<float>(), b.data_ptr<float>(), x.data_ptr<float>(), y.data_ptr<float>(), n, h.size(1));
  return y;
}
torch::Tensor bias_(torch::Tensor h, torch::Tensor b) {
  int n = h.numel();
  bias_kernel<<<(n + 127) / 128, 128, 0, c10::cuda::getCurrentCUDAStream()>>>(h.data_ptr<float>(), b.data_ptr<float>(), n, h.size(1));
  return h;
}
"""
ops = load_inline(name="t_nested_mlp", cpp_sources=CPP, cuda_sources=CUDA, functions=["layer_norm", "bias_silu_", "bias_residual", "bias_"])


class OwnLayerNorm(nn.LayerNorm):
    def forward(self, x):
        return ops.layer_norm(x, self.weight, self.bias, self.eps)


class OwnLinear(nn.Linear):
    def forward(self, x):
        return ops.bias_(torch.mm(x, self.weight.t()), self.bias)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = OwnLayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        h = ops.bias_silu_(torch.mm(self.norm(x), self.up.weight.t()), self.up.bias)
        return ops.bias_residual(torch.mm(h, self.down.weight.t()), self.down.bias, x)


class ModelNew(nn.Module):
    def __init__(self, width, hidden, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, hidden) for _ in range(depth)])
        self.head = nn.Sequential(OwnLayerNorm(width), OwnLinear(width, 10))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)
