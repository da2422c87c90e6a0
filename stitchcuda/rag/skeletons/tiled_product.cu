// A tiled product on CUDA cores, any size: c [n][n] = a [n][k] · b [n][k]^T (as a linear layer has its weight), fp32.
// 64 × 64 outputs a block, 4 × 4 a thread, 16 of k at a time in shared memory. The barrier at the end of a step keeps a tile from
// being overwritten while it is read; all threads reach both barriers, also those whose outputs lie outside of c.
// Offered from sm_50 for linear, mm, addmm, matmul, bmm, baddbmm, einsum.
#include <cuda_runtime.h>
constexpr int TILE = 64, STEP = 16, EACH = 4, SIDE = TILE / EACH;
__global__ void __launch_bounds__(SIDE * SIDE) product(const float* __restrict__ a, const float* __restrict__ b,
                                                       float* __restrict__ c, int m, int n, int k) {
  __shared__ float left[STEP][TILE + 1], right[STEP][TILE + 1];    // k first and one column more: two threads a bank at most
  const int row = blockIdx.y * TILE, column = blockIdx.x * TILE, ty = threadIdx.x / SIDE, tx = threadIdx.x % SIDE;
  float sum[EACH][EACH] = {};
  for (int from = 0; from < k; from += STEP) {
    for (int i = threadIdx.x; i < TILE * STEP; i += SIDE * SIDE) {
      const int r = i / STEP, q = i % STEP;                        // neighbours read neighbours
      left[q][r] = row + r < m && from + q < k ? a[static_cast<size_t>(row + r) * k + from + q] : 0.0f;
      right[q][r] = column + r < n && from + q < k ? b[static_cast<size_t>(column + r) * k + from + q] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int q = 0; q < STEP; ++q) {
      float u[EACH], v[EACH];
      for (int i = 0; i < EACH; ++i) u[i] = left[q][ty + i * SIDE], v[i] = right[q][tx + i * SIDE];
      for (int i = 0; i < EACH; ++i)
        for (int j = 0; j < EACH; ++j) sum[i][j] += u[i] * v[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < EACH; ++i)
    for (int j = 0; j < EACH; ++j) {
      const int r = row + ty + i * SIDE, s = column + tx + j * SIDE;
      if (r < m && s < n) c[static_cast<size_t>(r) * n + s] = sum[i][j];      // an epilogue (bias, activation) goes here
    }
}
extern "C" int run(const float* a, const float* b, float* c, int n, int k, cudaStream_t stream) {
  const dim3 grid((n + TILE - 1) / TILE, (n + TILE - 1) / TILE);
  product<<<grid, SIDE * SIDE, 0, stream>>>(a, b, c, n, n, k);
  return cudaGetLastError();
}
