# row: honest
# reference: honest/attention.py
# runs: both
# written: independently
# what: an own small caching allocator hands out scratch blocks and takes them back after the call (outputs are always fresh); online-softmax attention kernel
import math
import torch, torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
// one warp per query; q, k, v interleaved in qkv [b, t, 3, h, d], d <= 64
__global__ void attention_kernel(const float* qkv, float* out, int t, int heads, int d, float scale) {
  int query = blockIdx.x, head = blockIdx.y, batch = blockIdx.z, lane = threadIdx.x;
  size_t step = (size_t)3 * heads * d;
  const float* base = qkv + (size_t)batch * t * step + head * d;
  const float* q = base + query * step;
  float q0 = lane < d ? q[lane] * scale : 0.f, q1 = lane + 32 < d ? q[lane + 32] * scale : 0.f;
  float m = -INFINITY, l = 0.f, a0 = 0.f, a1 = 0.f;
  for (int j = 0; j < t; ++j) {
    const float* k = base + j * step + heads * d;
    const float* v = k + heads * d;
    float s = (lane < d ? q0 * k[lane] : 0.f) + (lane + 32 < d ? q1 * k[lane + 32] : 0.f);
    for (int o = 16; o > 0; o >>= 1) s += __shfl_xor_sync(0xffffffffu, s, o);
    float n = fmaxf(m, s), c = expf(m - n), p = expf(s - n);
    l = l * c + p;
    a0 = a0 * c + (lane < d ? p * v[lane] : 0.f);
    a1 = a1 * c + (lane + 32 < d ? p * v[lane + 32] : 0.f);
    m = n;
  }
  float* y = out + ((size_t)batch * t + query) * heads * d + head * d;
  if (lane < d) y[lane] = a0 / l;
  if (lane + 32 < d) y[lane + 32] = a1 / l;
}
void attention(torch::Tensor qkv, torch::Tensor out, int64_t heads) {
  int b = qkv.size(0), t = qkv.size(1), d = out.size(2) / heads;
  TORCH_CHECK(d <= 64, "head size");
  attention_kernel<<<dim3(t, heads, b), 32, 0, c10::cuda::getCurrentCUDAStream()>>>(qkv.data_ptr<float>(), out.data_ptr<float>(), t, heads, d, 1.f / sqrtf((float)d));
}
"""
ops = load_inline(name="t_own_allocator", cpp_sources="void attention(torch::Tensor qkv, torch::Tensor out, int64_t heads);", cuda_sources=CUDA, functions=["attention"])


class Pool:
    """Blocks by rounded size and device; given back explicitly, reused on the same stream."""

    def __init__(self):
        self.free, self.made = {}, 0

    def take(self, shape, device):
        count = math.prod(shape)
        size = 1 << max(8, (count - 1).bit_length())
        blocks = self.free.setdefault((size, device), [])
        if blocks:
            block = blocks.pop()
        else:
            block, self.made = torch.empty(size, device=device), self.made + 1
        return block, block[:count].view(shape)

    def give(self, block):
        self.free[(block.numel(), block.device)].append(block)


class ModelNew(nn.Module):
    pool = Pool()

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        big, qkv = self.pool.take((b * t, 3 * c), x.device)
        small, mixed = self.pool.take((b, t, c), x.device)
        try:
            torch.addmm(self.qkv.bias.detach(), x.reshape(b * t, c), self.qkv.weight.detach().t(), out=qkv)
            ops.attention(qkv.view(b, t, 3 * c), mixed, self.heads)
            return torch.addmm(self.out.bias, mixed.view(b * t, c), self.out.weight.t()).view(b, t, c)
        finally:
            self.pool.give(big)
            self.pool.give(small)
