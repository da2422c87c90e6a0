# row: honest
# reference: honest/topk_argmax.py
# runs: both
# written: independently
# what: integer and float outputs in one tuple: k rounds of block-wide maximum with an index, plus argmin, ties broken by the lower index
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void top_k(const float* x, float* values, long long* indices, int width, int k) {
  extern __shared__ float row[];
  __shared__ float bv[64];
  __shared__ int bi[64];
  int t = threadIdx.x;
  for (int i = t; i < width; i += 64) row[i] = x[(size_t)blockIdx.x * width + i];
  __syncthreads();
  for (int round = 0; round < k; ++round) {
    float best = -INFINITY; int at = width;
    for (int i = t; i < width; i += 64) if (row[i] > best || (row[i] == best && i < at)) { best = row[i]; at = i; }
    bv[t] = best; bi[t] = at;
    __syncthreads();
    for (int h = 32; h > 0; h >>= 1) {
      if (t < h && (bv[t + h] > bv[t] || (bv[t + h] == bv[t] && bi[t + h] < bi[t]))) { bv[t] = bv[t + h]; bi[t] = bi[t + h]; }
      __syncthreads();
    }
    if (t == 0) { values[blockIdx.x * k + round] = bv[0]; indices[blockIdx.x * k + round] = bi[0]; row[bi[0]] = -INFINITY; }
    __syncthreads();
  }
}
__global__ void arg_min(const float* x, long long* out, int rows, int width) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  float best = INFINITY; int at = width;
  if (row < rows) for (int i = lane; i < width; i += 32) { float v = x[(size_t)row * width + i]; if (v < best) { best = v; at = i; } }
  for (int d = 16; d > 0; d >>= 1) {
    float ov = __shfl_xor_sync(0xffffffffu, best, d); int oi = __shfl_xor_sync(0xffffffffu, at, d);
    if (ov < best || (ov == best && oi < at)) { best = ov; at = oi; }
  }
  if (row < rows && lane == 0) out[row] = at;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView values, tvm::ffi::TensorView indices, tvm::ffi::TensorView low) {
  int rows = (int)x.size(0), width = (int)x.size(1), k = (int)values.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  top_k<<<rows, 64, width * sizeof(float), stream>>>((const float*)x.data_ptr(), (float*)values.data_ptr(), (long long*)indices.data_ptr(), width, k);
  arg_min<<<(rows + 3) / 4, 128, 0, stream>>>((const float*)x.data_ptr(), (long long*)low.data_ptr(), rows, width);
}
"""
module = load_inline("h_topk_ints", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k

    def forward(self, x):
        values = torch.empty(x.shape[0], self.k, device=x.device, dtype=x.dtype)
        indices = torch.empty(x.shape[0], self.k, device=x.device, dtype=torch.int64)
        low = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        module.run(x, values, indices, low)
        return values, indices, low
