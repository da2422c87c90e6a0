# row: honest
# reference: honest/mlp.py
# runs: both
# written: independently
# what: whole MLP in own kernels with one ping-pong activation workspace kept in a module attribute and many in-place steps; only the last kernel writes the fresh output
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
namespace {
__device__ __forceinline__ float silu(float v) { return v / (1.f + expf(-v)); }
__global__ void norm_rows(const float* x, const float* w, const float* b, float* y, int width, float eps) {
  const float* in = x + (size_t)blockIdx.x * width;
  float s = 0.f, q = 0.f;
  for (int i = threadIdx.x; i < width; i += 32) s += in[i];
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  float m = s / width;
  for (int i = threadIdx.x; i < width; i += 32) q += (in[i] - m) * (in[i] - m);
  for (int d = 16; d > 0; d >>= 1) q += __shfl_xor_sync(0xffffffffu, q, d);
  float r = 1.f / sqrtf(q / width + eps);
  for (int i = threadIdx.x; i < width; i += 32) y[(size_t)blockIdx.x * width + i] = (in[i] - m) * r * w[i] + b[i];
}
// MODE 0: y = x w^T + b; 1: y = silu(...); 2: y += ... (in place on the residual stream)
template <int MODE>
__global__ void linear(const float* x, const float* w, const float* b, float* y, int n, int k) {
  extern __shared__ float row[];
  for (int i = threadIdx.x; i < k; i += blockDim.x) row[i] = x[(size_t)blockIdx.y * k + i];
  __syncthreads();
  int col = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  float s = 0.f;
  if (col < n) for (int i = lane; i < k; i += 32) s = fmaf(row[i], w[(size_t)col * k + i], s);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (col < n && lane == 0) {
    float* out = y + (size_t)blockIdx.y * n + col;
    s += b[col];
    if (MODE == 0) *out = s;
    if (MODE == 1) *out = silu(s);
    if (MODE == 2) *out += s;
  }
}
}
void norm_into(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y, double eps) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  norm_rows<<<(int)x.size(0), 32, 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), (int)x.size(1), (float)eps);
}
void dense(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y, int64_t mode) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  dim3 grid((n + 3) / 4, m);
  size_t bytes = k * sizeof(float);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  const float *xp = (const float*)x.data_ptr(), *wp = (const float*)w.data_ptr(), *bp = (const float*)b.data_ptr();
  float* yp = (float*)y.data_ptr();
  if (mode == 0) linear<0><<<grid, 128, bytes, stream>>>(xp, wp, bp, yp, n, k);
  else if (mode == 1) linear<1><<<grid, 128, bytes, stream>>>(xp, wp, bp, yp, n, k);
  else linear<2><<<grid, 128, bytes, stream>>>(xp, wp, bp, yp, n, k);
}
"""
module = load_inline("h_mlp_workspace", cuda_sources=CUDA, functions=["norm_into", "dense"])


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)


class ModelNew(nn.Module):
    def __init__(self, width, hidden, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(width, hidden) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 10))
        self._space = (None,)

    def _workspace(self, rows, width, hidden, device):
        key = (rows, width, hidden, device)
        if self._space[0] != key:
            self._space = (key, torch.empty(rows, width, device=device), torch.empty(rows, hidden, device=device), torch.empty(rows, width, device=device))
        return self._space[1:]

    def forward(self, x):
        hidden = self.blocks[0].up.out_features
        normal, wide, stream = self._workspace(x.shape[0], x.shape[1], hidden, x.device)
        stream.copy_(x)                        # the residual stream; the input itself stays untouched
        for block in self.blocks:
            module.norm_into(stream, block.norm.weight, block.norm.bias, normal, block.norm.eps)
            module.dense(normal, block.up.weight, block.up.bias, wide, 1)
            module.dense(wide, block.down.weight, block.down.bias, stream, 2)
        out = torch.empty(x.shape[0], self.head[1].out_features, device=x.device)
        module.norm_into(stream, self.head[0].weight, self.head[0].bias, normal, self.head[0].eps)
        module.dense(normal, self.head[1].weight, self.head[1].bias, out, 0)
        return out
