// One C++ entry with several kernels and a persistent workspace: column means of x [rows][columns] fp32, subtracted from it.
// `partial` has PIECES · columns floats. model_new.py makes it once and keeps it as a plain attribute: it is no parameter, no
// output, and never returned. One call from Python, no allocation, no synchronisation: stream order is the barrier between kernels.
// Offered from sm_50 for any operator.
#include <cuda_runtime.h>
constexpr int PIECES = 8, THREADS = 128;
__global__ void column_sums(const float* __restrict__ x, float* __restrict__ partial, int rows, int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int row = blockIdx.y; row < rows; row += PIECES) sum += x[static_cast<size_t>(row) * columns + column];
  partial[blockIdx.y * columns + column] = sum;                    // every element is written: no need to clear it before
}
__global__ void subtract_means(const float* __restrict__ x, const float* __restrict__ partial, float* __restrict__ y, int rows,
                               int columns) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int piece = 0; piece < PIECES; ++piece) sum += partial[piece * columns + column];   // in a fixed order: deterministic
  for (int row = blockIdx.y; row < rows; row += gridDim.y) {
    const size_t at = static_cast<size_t>(row) * columns + column;
    y[at] = x[at] - sum / rows;
  }
}
extern "C" int run(const float* x, float* partial, float* y, int rows, int columns, cudaStream_t stream) {
  const dim3 grid((columns + THREADS - 1) / THREADS, PIECES);
  column_sums<<<grid, THREADS, 0, stream>>>(x, partial, rows, columns);
  if (const cudaError_t error = cudaGetLastError()) return error;
  subtract_means<<<grid, THREADS, 0, stream>>>(x, partial, y, rows, columns);
  return cudaGetLastError();
}
