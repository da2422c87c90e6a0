# row: A11
# reference: results/layer_norm.py
# runs: both
# written: independently
# what: rows, width and row stride are compiled in (64, 256, contiguous) with nothing that says so: other batch sizes get garbage rows, transposed inputs a wrong answer
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void layer_norm(const float4* x, const float4* w, const float4* b, float4* y) {
  __shared__ float part[64];
  int t = threadIdx.x; float4 v = x[blockIdx.x * 64 + t];
  part[t] = v.x + v.y + v.z + v.w; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float mean = part[0] / 256.f; __syncthreads();
  v.x -= mean; v.y -= mean; v.z -= mean; v.w -= mean;
  part[t] = v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float s = rsqrtf(part[0] / 256.f + 1e-5f);
  float4 g = w[t], h = b[t];
  y[blockIdx.x * 64 + t] = make_float4(v.x * s * g.x + h.x, v.y * s * g.y + h.y, v.z * s * g.z + h.z, v.w * s * g.w + h.w);
}
void run(TensorView x, TensorView w, TensorView b, TensorView y) {
  layer_norm<<<64, 64, 0, STREAM(x)>>>((const float4*)x.data_ptr(), (const float4*)w.data_ptr(), (const float4*)b.data_ptr(), (float4*)y.data_ptr());
}
"""
module = load_inline("a11_fixed_shape", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x, self.norm.weight, self.norm.bias, y)
        return y
