// Bound by latency: a few warps follow a chain through memory, each load waits for the one before.

#include <cuda_runtime.h>

namespace {

__global__ void pointer_chase(int* ends, const int* next, int hops) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  for (int hop = 0; hop < hops; ++hop) at = next[at];
  ends[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

}  // namespace

extern "C" int pointer_chase_launch(int* ends, const int* next, long long count, int hops, cudaStream_t stream) {
  pointer_chase<<<static_cast<unsigned>(count / 32), 32, 0, stream>>>(ends, next, hops);
  return cudaGetLastError();
}
