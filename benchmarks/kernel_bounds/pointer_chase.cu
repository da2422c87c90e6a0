// Bound by latency: a few warps follow chains of 64-byte nodes through memory; each node says where the next one is, and the
// rest of it is used too, so that what is fetched is what is counted.

#include <cuda_runtime.h>

namespace {

struct alignas(64) Node {
  int4 first, second, third, fourth;       // first.x is the next node
};

__device__ int summed(int4 four) { return four.x + four.y + four.z + four.w; }

__global__ void pointer_chase(int2* ends, const int* starts, const Node* nodes, int hops) {
  const int chain = blockIdx.x * blockDim.x + threadIdx.x;
  int at = starts[chain];
  int sum = 0;
  for (int hop = 0; hop < hops; ++hop) {
    const Node node = nodes[at];
    at = node.first.x;
    sum += node.first.y + node.first.z + node.first.w + summed(node.second) + summed(node.third) + summed(node.fourth);
  }
  ends[chain] = make_int2(at, sum);
}

}  // namespace

extern "C" int pointer_chase_launch(int* ends, const int* starts, const int* nodes, long long chains, int hops,
                                    cudaStream_t stream) {
  pointer_chase<<<static_cast<unsigned>(chains / 32), 32, 0, stream>>>(
      reinterpret_cast<int2*>(ends), starts, reinterpret_cast<const Node*>(nodes), hops);
  return cudaGetLastError();
}
