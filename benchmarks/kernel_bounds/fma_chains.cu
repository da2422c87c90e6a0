// Bound by compute: each thread runs eight chains of FMAs side by side and writes one number at the end.

#include <cuda_runtime.h>

namespace {

constexpr int kChains = 8;

__global__ void __launch_bounds__(256, 8) fma_chains(float* out, int rounds) {
  float sums[kChains];
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) sums[chain] = threadIdx.x + 0.25f * chain;
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) sums[chain] = fmaf(sums[chain], 0.999f, 0.001f);
  }
  float sum = 0.0f;
#pragma unroll
  for (int chain = 0; chain < kChains; ++chain) sum += sums[chain];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

extern "C" int fma_chains_launch(float* out, long long count, int rounds, cudaStream_t stream) {
  fma_chains<<<static_cast<unsigned>(count / 256), 256, 0, stream>>>(out, rounds);
  return cudaGetLastError();
}
