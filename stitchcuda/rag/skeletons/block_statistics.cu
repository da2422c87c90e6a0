// Block statistics without races: LayerNorm of rows of x [rows][columns] fp32, weight and bias in `affine` [2][columns].
// `block_sum` may be called again and again with the same shared array: the first barrier lets all threads finish reading the
// last result before it is overwritten, the second lets them see the new one. Every thread of the block has to call it.
// Offered from sm_50 for any operator.
#include <cuda_runtime.h>
constexpr int THREADS = 256, WARPS = THREADS / 32;
__device__ float block_sum(float value, float* shared) {
  for (int offset = 16; offset; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
  __syncthreads();                                                 // the last call's result has been read by all
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  float sum = 0.0f;
  for (int warp = 0; warp < WARPS; ++warp) sum += shared[warp];    // each thread adds all: no third barrier, one order
  return sum;
}
__global__ void __launch_bounds__(THREADS) layer_norm(const float* __restrict__ x, const float* __restrict__ affine,
                                                      float* __restrict__ y, int columns) {
  __shared__ float shared[WARPS];
  const float* row = x + static_cast<size_t>(blockIdx.x) * columns;
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += row[i];
  const float mean = block_sum(sum, shared) / columns;
  float squares = 0.0f;                                            // two passes: no cancellation in E[x²] - E[x]²
  for (int i = threadIdx.x; i < columns; i += THREADS) squares += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_sum(squares, shared) / columns + 1e-5f);
  for (int i = threadIdx.x; i < columns; i += THREADS)
    y[static_cast<size_t>(blockIdx.x) * columns + i] = (row[i] - mean) * scale * affine[i] + affine[columns + i];
}
extern "C" int run(const float* x, const float* affine, float* y, int rows, int columns, cudaStream_t stream) {
  layer_norm<<<rows, THREADS, 0, stream>>>(x, affine, y, columns);
  return cudaGetLastError();
}
