// Bound by compute: each thread reads the starting values of eight chains of FMAs, runs them side by side, and each warp
// writes one number. The multiplier and the summand are parameters, so that no constant is loaded inside the loop.

#include <cuda_runtime.h>

namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads, 8) fma_chains(float* out, const float4* start, float factor, float summand,
                                                          int rounds) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const float4 low = start[i];
  const float4 high = start[i + gridDim.x * kThreads];
  float sums[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll 16
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int chain = 0; chain < 8; ++chain) sums[chain] = fmaf(sums[chain], factor, summand);
  }
  float sum = 0.0f;
#pragma unroll
  for (int chain = 0; chain < 8; ++chain) sum += sums[chain];
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  if (threadIdx.x % 32 == 0) out[i / 32] = sum;
}

}  // namespace

// `count` starting values, a multiple of 8 * kThreads.
extern "C" int fma_chains_launch(float* out, const float* start, long long count, float factor, float summand, int rounds,
                                 cudaStream_t stream) {
  fma_chains<<<static_cast<unsigned>(count / (8 * kThreads)), kThreads, 0, stream>>>(
      out, reinterpret_cast<const float4*>(start), factor, summand, rounds);
  return cudaGetLastError();
}
