# row: honest
# reference: honest/gpu_matmul_tf32.py (first in float32: there its norm error is ten times the reference's on an H200, at the bound)
# runs: gpu
# written: independently
# what: fp32-level product from three bf16 tensor-core products (high*high + high*low + low*high, fp32 accumulation); own split kernel; error five to six times fp32's
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_bf16.h>
#include <mma.h>
namespace wm = nvcuda::wmma;
typedef __nv_bfloat16 bf16;
constexpr int BM = 64, BN = 64, BK = 32, LA = BK + 8, LB = BN + 8;
__global__ void split(const float* x, bf16* hi, bf16* lo, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i];
  bf16 h = __float2bfloat16_rn(v);
  hi[i] = h;
  lo[i] = __float2bfloat16_rn(v - __bfloat162float(h));
}
// c[m, n] = a[m, k] b[k, n]; m, n multiples of 64, k of 32
__global__ void __launch_bounds__(128) product(const bf16* __restrict__ ah, const bf16* __restrict__ al, const bf16* __restrict__ bh, const bf16* __restrict__ bl,
                                               float* __restrict__ c, int n, int k) {
  __shared__ __align__(32) bf16 sah[BM * LA], sal[BM * LA], sbh[BK * LB], sbl[BK * LB];
  int warp = threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 32;
  wm::fragment<wm::accumulator, 16, 16, 16, float> main_[2][2], rest[2][2];
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) { wm::fill_fragment(main_[i][j], 0.f); wm::fill_fragment(rest[i][j], 0.f); }
  for (int k0 = 0; k0 < k; k0 += BK) {
    for (int e = threadIdx.x; e < BM * BK / 8; e += 128) {
      int r = e / (BK / 8), q = e % (BK / 8) * 8;
      size_t at = ((size_t)blockIdx.y * BM + r) * k + k0 + q;
      *(uint4*)(sah + r * LA + q) = *(const uint4*)(ah + at);
      *(uint4*)(sal + r * LA + q) = *(const uint4*)(al + at);
    }
    for (int e = threadIdx.x; e < BK * BN / 8; e += 128) {
      int r = e / (BN / 8), q = e % (BN / 8) * 8;
      size_t at = (size_t)(k0 + r) * n + blockIdx.x * BN + q;
      *(uint4*)(sbh + r * LB + q) = *(const uint4*)(bh + at);
      *(uint4*)(sbl + r * LB + q) = *(const uint4*)(bl + at);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < BK; kk += 16) {
      wm::fragment<wm::matrix_a, 16, 16, 16, bf16, wm::row_major> fh[2], fl[2];
      wm::fragment<wm::matrix_b, 16, 16, 16, bf16, wm::row_major> gh[2], gl[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wm::load_matrix_sync(fh[i], sah + (wr + 16 * i) * LA + kk, LA);
        wm::load_matrix_sync(fl[i], sal + (wr + 16 * i) * LA + kk, LA);
        wm::load_matrix_sync(gh[i], sbh + kk * LB + wc + 16 * i, LB);
        wm::load_matrix_sync(gl[i], sbl + kk * LB + wc + 16 * i, LB);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          wm::mma_sync(rest[i][j], fl[i], gh[j], rest[i][j]);
          wm::mma_sync(rest[i][j], fh[i], gl[j], rest[i][j]);
          wm::mma_sync(main_[i][j], fh[i], gh[j], main_[i][j]);
        }
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) {
    for (int t = 0; t < main_[i][j].num_elements; ++t) main_[i][j].x[t] += rest[i][j].x[t];
    wm::store_matrix_sync(c + ((size_t)blockIdx.y * BM + wr + 16 * i) * n + blockIdx.x * BN + wc + 16 * j, main_[i][j], n, wm::mem_row_major);
  }
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView b, tvm::ffi::TensorView sa, tvm::ffi::TensorView sb, tvm::ffi::TensorView c) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)b.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  bf16 *ah = (bf16*)sa.data_ptr(), *al = ah + (size_t)m * k, *bh = (bf16*)sb.data_ptr(), *bl = bh + (size_t)k * n;
  split<<<(m * k + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), ah, al, m * k);
  split<<<(k * n + 255) / 256, 256, 0, stream>>>((const float*)b.data_ptr(), bh, bl, k * n);
  product<<<dim3(n / BN, m / BM), 128, 0, stream>>>(ah, al, bh, bl, (float*)c.data_ptr(), n, k);
}
"""
module = load_inline("g_split_bf16", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        if m % 64 or n % 64 or k % 32:
            raise ValueError("sizes must be multiples of 64, 64 and 32")
        parts_a = torch.empty(2, m, k, dtype=torch.bfloat16, device=a.device)
        parts_b = torch.empty(2, k, n, dtype=torch.bfloat16, device=a.device)
        c = torch.empty(m, n, device=a.device)
        module.run(a, b, parts_a, parts_b, c)
        return c
