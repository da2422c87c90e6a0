// A pipelined product on tensor cores as exact as fp32, any size: c [m][n] = a [m][k] · b [n][k]^T + bias [n], fp32, sm_80.
// Each row of a and of b is scaled by a power of two (largest element in 2^14 to 2^15) and split into high and low fp16 parts,
// 22 bits; three products by mma.sync, small ones first. Tensor cores truncate when they add: after each 128 of k the piece goes
// to fp32 sums, so the error does not grow as in one long product. A ring of four stages, filled by cp.async, feeds them.
// Expected, not measured: 2 to 3 times fp32 on CUDA cores where tiles fill the GPU; wgmma (playbook tma-wgmma) would give more.
// Limits: n ≤ 4,000,000; elements below 2^-39 of their row's largest are lost; an infinity may give NaN; one device a process.
// `parts` holds [2][rows][padded(k)] halves, padded(k) the next multiple of 32, `undo` [rows] floats. Those of b are made once,
// and anew where the weight changes, those of a in each call (best by the kernel that produces a). A call allocates nothing.
// Offered from sm_80 for linear, mm, addmm, matmul, bmm, baddbmm, einsum.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
constexpr int STEP = 32, ROW = STEP + 8, STAGES = 4, PIECE = 4;    // rows of 80 bytes: ldmatrix has no bank conflicts
// 16 bytes, zeros where there is nothing to copy.
__device__ void copy16(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(there ? 16 : 0) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LEFT> __device__ void wait() { asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory"); }
// Four 8 × 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, and gets of each elements 2(l % 4), + 1 of row l / 4.
__device__ void load4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))) : "memory");
}
// With g = lane / 4, t = lane % 4: a: rows g, g + 8, g, g + 8 at k = 2t, 2t, 2t + 8, 2t + 8 and the next; b: column g at k = 2t
// and 2t + 8 and the next; c: row g at columns 2t, 2t + 1, then row g + 8.
__device__ void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__host__ __device__ constexpr int padded(int k) { return (k + STEP - 1) / STEP * STEP; }
__global__ void __launch_bounds__(256) split(const float* __restrict__ x, __half* __restrict__ parts, float* __restrict__ undo,
                                             int k) {
  __shared__ float shared[8];
  const float* row = x + static_cast<size_t>(blockIdx.x) * k;
  float largest = 0.0f;
  for (int i = threadIdx.x; i < k; i += 256) largest = fmaxf(largest, fabsf(row[i]));
  for (int offset = 16; offset; offset /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, offset));
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = largest;
  __syncthreads();
  for (int warp = 0; warp < 8; ++warp) largest = fmaxf(largest, shared[warp]);
  const int exponent = largest > 0.0f ? min(max(ilogbf(largest), -100), 127) : 0;
  const float scale = ldexpf(1.0f, 14 - exponent);
  __half* high = parts + static_cast<size_t>(blockIdx.x) * padded(k);
  __half* low = high + static_cast<size_t>(gridDim.x) * padded(k);
  for (int i = threadIdx.x; i < padded(k); i += 256) {
    const float value = i < k ? row[i] * scale : 0.0f;
    high[i] = __float2half_rn(value);
    low[i] = __float2half_rn(isinf(value) ? 0.0f : value - __half2float(high[i]));
  }
  if (threadIdx.x == 0) undo[blockIdx.x] = ldexpf(1.0f, exponent - 14);
}
// A block computes M × N outputs, a warp WM × WN of them.
template <int M, int N, int WM, int WN>
__global__ void __launch_bounds__(32 * (M / WM) * (N / WN), 1)
    product(const __half* __restrict__ a, const float* __restrict__ undo_a, const __half* __restrict__ b,
            const float* __restrict__ undo_b, const float* __restrict__ bias, float* __restrict__ c, int m, int n, int k) {
  constexpr int THREADS = 32 * (M / WM) * (N / WN), LINES = 2 * (M + N);
  extern __shared__ __align__(16) __half ring[];                   // a stage: a's high and low rows, then b's
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = blockIdx.x * M, column = blockIdx.y * N;
  const int wm = warp / (N / WN) * WM, wn = warp % (N / WN) * WN, width = padded(k), steps = width / STEP;
  auto fetch = [&](int step) {
    __half* stage = ring + step % STAGES * LINES * ROW;
#pragma unroll
    for (int i = threadIdx.x; i < LINES * (STEP / 8) && step < steps; i += THREADS) {
      const int line = i / (STEP / 8), at = i % (STEP / 8) * 8;
      const bool left = line < 2 * M;
      const int local = left ? line : line - 2 * M, size = left ? M : N, rows = left ? m : n;
      const int from = (left ? row : column) + local % size;
      const size_t source = static_cast<size_t>(local / size) * rows + min(from, rows - 1);
      copy16(stage + line * ROW + at, (left ? a : b) + source * width + step * STEP + at, from < rows);
    }
    commit();                                                      // an empty group, too: their count stays in step
  };
  float sum[WM / 16][WN / 8][4] = {}, piece[WM / 16][WN / 8][4] = {};
  auto add = [&] {
#pragma unroll
    for (int i = 0; i < WM / 16; ++i)
#pragma unroll
      for (int j = 0; j < WN / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] += piece[i][j][e], piece[i][j][e] = 0.0f;
  };
  for (int step = 0; step < STAGES - 1; ++step) fetch(step);
  for (int step = 0; step < steps; ++step) {
    wait<STAGES - 2>();                                            // my part of this stage is there
    __syncthreads();                                               // all parts are, and all are done with the last stage
    fetch(step + STAGES - 1);                                      // into the last stage
    const __half* as = ring + step % STAGES * LINES * ROW + (wm + lane % 16) * ROW + lane / 16 * 8;
    const __half* bs = ring + (step % STAGES * LINES + 2 * M + wn + lane / 16 * 8 + lane % 8) * ROW + lane / 8 % 2 * 8;
#pragma unroll
    for (int q = 0; q < STEP; q += 16) {
      unsigned ah[WM / 16][4], al[WM / 16][4], bh[WN / 16][4], bl[WN / 16][4];
#pragma unroll
      for (int i = 0; i < WM / 16; ++i) load4(ah[i], as + i * 16 * ROW + q), load4(al[i], as + (M + i * 16) * ROW + q);
#pragma unroll
      for (int j = 0; j < WN / 16; ++j) load4(bh[j], bs + j * 16 * ROW + q), load4(bl[j], bs + (N + j * 16) * ROW + q);
#pragma unroll
      for (int term = 0; term < 3; ++term)
#pragma unroll
        for (int i = 0; i < WM / 16; ++i)
#pragma unroll
          for (int j = 0; j < WN / 8; ++j) {
            const unsigned(&v)[4] = term == 0 ? bl[j / 2] : bh[j / 2];
            mma(piece[i][j], term == 1 ? al[i] : ah[i], v[j % 2 * 2], v[j % 2 * 2 + 1]);
          }
    }
    if (step % PIECE == PIECE - 1) add();
  }
  add();
#pragma unroll
  for (int i = 0; i < WM / 16; ++i)
#pragma unroll
    for (int j = 0; j < WN / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row + wm + i * 16 + lane / 4 + e / 2 * 8, s = column + wn + j * 8 + lane % 4 * 2 + e % 2;
        if (r < m && s < n)                                        // an epilogue (an activation) goes here
          c[static_cast<size_t>(r) * n + s] = sum[i][j][e] * (undo_a[r] * undo_b[s]) + bias[s];
      }
}
template <int M, int N, int WM, int WN>
int launch(const __half* a, const float* undo_a, const __half* b, const float* undo_b, const float* bias, float* c, int m, int n,
           int k, cudaStream_t stream) {
  constexpr int BYTES = STAGES * 2 * (M + N) * ROW * static_cast<int>(sizeof(__half));
  const auto kernel = product<M, N, WM, WN>;
  static const cudaError_t allowed = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, BYTES);
  if (allowed) return allowed;                                     // set once: for one device
  kernel<<<dim3((m + M - 1) / M, (n + N - 1) / N), 32 * (M / WM) * (N / WN), BYTES, stream>>>(a, undo_a, b, undo_b, bias, c, m, n,
                                                                                             k);
  return cudaGetLastError();
}
extern "C" int split_launch(const float* x, void* parts, float* undo, int rows, int k, cudaStream_t stream) {
  split<<<rows, 256, 0, stream>>>(x, static_cast<__half*>(parts), undo, k);
  return cudaGetLastError();
}
extern "C" int product_launch(const void* a, const float* undo_a, const void* b, const float* undo_b, const float* bias, float* c,
                              int m, int n, int k, cudaStream_t stream) {
  const bool large = static_cast<long long>((m + 127) / 128) * ((n + 127) / 128) >= 100;     // else there is an SM for each
  const auto chosen = large ? launch<128, 128, 64, 32> : launch<64, 64, 32, 32>;
  return chosen(static_cast<const __half*>(a), undo_a, static_cast<const __half*>(b), undo_b, bias, c, m, n, k, stream);
}
