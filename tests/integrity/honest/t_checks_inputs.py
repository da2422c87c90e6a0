# row: honest
# reference: honest/rms_rope.py
# runs: both
# written: independently
# what: refuses wrong dtypes and non-contiguous inputs with errors in Python and TORCH_CHECK in C++; one fused kernel
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#define CHECK(t) TORCH_CHECK((t).is_cuda() && (t).is_contiguous() && (t).scalar_type() == torch::kFloat32, #t " must be a contiguous float32 cuda tensor")
template <int THREADS>
__global__ void rms_rope(const float* x, const float* w, const float* cosine, const float* sine, float* y, int t, int half, float eps) {
  __shared__ float part[THREADS];
  const float* in = x + (size_t)blockIdx.x * 2 * half;
  float* out = y + (size_t)blockIdx.x * 2 * half;
  int pos = blockIdx.x % t;
  float s = 0.f;
  for (int i = threadIdx.x; i < 2 * half; i += THREADS) s = fmaf(in[i], in[i], s);
  part[threadIdx.x] = s;
  __syncthreads();
#pragma unroll
  for (int h = THREADS / 2; h > 0; h >>= 1) { if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h]; __syncthreads(); }
  float r = 1.f / sqrtf(part[0] / (2 * half) + eps);
  for (int j = threadIdx.x; j < half; j += THREADS) {
    float a = in[j] * r * w[j], b = in[half + j] * r * w[half + j], c = cosine[pos * half + j], d = sine[pos * half + j];
    out[j] = a * c - b * d;
    out[half + j] = a * d + b * c;
  }
}
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c, torch::Tensor s, double eps) {
  CHECK(x); CHECK(w); CHECK(c); CHECK(s);
  auto y = torch::empty_like(x);
  rms_rope<64><<<x.size(0) * x.size(1), 64, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), s.data_ptr<float>(),
      y.data_ptr<float>(), x.size(1), x.size(2) / 2, (float)eps);
  return y;
}
"""
ops = load_inline(name="t_checks_inputs", cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c, torch::Tensor s, double eps);",
                  cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps

    def forward(self, x, cos, sin):
        for name, t in (("x", x), ("cos", cos), ("sin", sin)):
            if t.dtype is not torch.float32:
                raise TypeError(f"{name}: float32 expected, got {t.dtype}")
            if not t.is_contiguous():
                raise ValueError(f"{name}: contiguous expected")
        assert x.dim() == 3 and cos.shape == sin.shape == (x.shape[1], x.shape[2] // 2)
        return ops.run(x, self.weight, cos, sin, self.eps)
