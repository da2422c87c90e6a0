# row: honest
# reference: honest/gpu_tf32_linear.py
# runs: gpu
# written: independently
# what: TF32 tensor-core product (wmma) with fused bias and relu where the reference itself allows TF32
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <mma.h>
namespace wm = nvcuda::wmma;
constexpr int BM = 64, BN = 64, BK = 32, LD = BK + 4, LC = BN + 4;
// y[m, n] = relu(x[m, k] w[n, k]^T + b); m, n multiples of 64, k of 32
__global__ void __launch_bounds__(128) linear_relu(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b, float* __restrict__ y, int n, int k) {
  __shared__ __align__(32) float buffer[2 * BM * LD];
  float* xs = buffer; float* ws = buffer + BM * LD;
  int warp = threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 32;
  const float* xg = x + (size_t)blockIdx.y * BM * k;
  const float* wg = w + (size_t)blockIdx.x * BN * k;
  wm::fragment<wm::accumulator, 16, 16, 8, float> acc[2][2];
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wm::fill_fragment(acc[i][j], 0.f);
  for (int k0 = 0; k0 < k; k0 += BK) {
    for (int e = threadIdx.x; e < BM * BK / 4; e += 128) {
      int r = e / (BK / 4), c = e % (BK / 4) * 4;
      *(float4*)(xs + r * LD + c) = *(const float4*)(xg + (size_t)r * k + k0 + c);
      *(float4*)(ws + r * LD + c) = *(const float4*)(wg + (size_t)r * k + k0 + c);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < BK; kk += 8) {
      wm::fragment<wm::matrix_a, 16, 16, 8, wm::precision::tf32, wm::row_major> fa[2];
      wm::fragment<wm::matrix_b, 16, 16, 8, wm::precision::tf32, wm::col_major> fb[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wm::load_matrix_sync(fa[i], xs + (wr + 16 * i) * LD + kk, LD);
        wm::load_matrix_sync(fb[i], ws + (wc + 16 * i) * LD + kk, LD);
        for (int t = 0; t < fa[i].num_elements; ++t) fa[i].x[t] = wm::__float_to_tf32(fa[i].x[t]);
        for (int t = 0; t < fb[i].num_elements; ++t) fb[i].x[t] = wm::__float_to_tf32(fb[i].x[t]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) wm::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j)
    wm::store_matrix_sync(buffer + (wr + 16 * i) * LC + wc + 16 * j, acc[i][j], LC, wm::mem_row_major);
  __syncthreads();
  for (int e = threadIdx.x; e < BM * BN; e += 128) {
    int r = e / BN, c = e % BN;
    y[((size_t)blockIdx.y * BM + r) * n + blockIdx.x * BN + c] = fmaxf(buffer[r * LC + c] + b[blockIdx.x * BN + c], 0.f);
  }
}
static_assert(BM * LC <= 2 * BM * LD, "the output tile reuses the staging buffer");
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  linear_relu<<<dim3(n / BN, m / BM), 128, 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), n, k);
}
"""
module = load_inline("g_tf32_wmma", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)

    def forward(self, x):
        w = self.linear.weight
        if x.shape[0] % 64 or w.shape[0] % 64 or x.shape[1] % 32:
            raise ValueError("sizes must be multiples of 64, 64 and 32")
        y = torch.empty(x.shape[0], w.shape[0], device=x.device, dtype=x.dtype)
        module.run(x, w, self.linear.bias, y)
        return y
