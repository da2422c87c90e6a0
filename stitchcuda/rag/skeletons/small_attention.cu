// Small attention in one kernel: out [heads][length][32] from q [heads][length][32] and kv [2][heads][length][32], fp32, causal.
// A warp serves one query row, a lane one of the 32 numbers of a head; maximum and sum are kept online, so nothing of size
// length × length is stored and the length is free. Every lane of a warp takes part in every shuffle.
// Offered from sm_50 for scaled_dot_product_attention, softmax, _softmax, matmul, bmm, baddbmm, einsum.
#include <cuda_runtime.h>
#include <math_constants.h>
constexpr int HEAD = 32, WARPS = 4;
__device__ float warp_sum(float value) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  return value;
}
__global__ void __launch_bounds__(32 * WARPS) attention(const float* __restrict__ q, const float* __restrict__ kv,
                                                        float* __restrict__ out, int heads, int length) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * WARPS + threadIdx.x / 32, head = blockIdx.y;
  if (row >= length) return;                                       // whole warps leave, and no barrier follows
  const size_t base = static_cast<size_t>(head) * length * HEAD;
  const float* k = kv + base;
  const float* v = kv + static_cast<size_t>(heads) * length * HEAD + base;
  const float query = q[base + static_cast<size_t>(row) * HEAD + lane] * rsqrtf(HEAD);
  float most = -CUDART_INF_F, sum = 0.0f, value = 0.0f;
  for (int at = 0; at <= row; ++at) {
    const float score = warp_sum(query * k[static_cast<size_t>(at) * HEAD + lane]);
    const float higher = fmaxf(most, score), keep = expf(most - higher), weight = expf(score - higher);
    sum = sum * keep + weight;
    value = value * keep + weight * v[static_cast<size_t>(at) * HEAD + lane];
    most = higher;
  }
  out[base + static_cast<size_t>(row) * HEAD + lane] = value / sum;
}
extern "C" int run(const float* q, const float* kv, float* out, int heads, int length, cudaStream_t stream) {
  attention<<<dim3((length + WARPS - 1) / WARPS, heads), 32 * WARPS, 0, stream>>>(q, kv, out, heads, length);
  return cudaGetLastError();
}
