// Two kernels as a programmatic dependent launch: column means of x [rows][columns] fp32, subtracted; rows ≤ 524,280, sm_90.
// The consumer starts while the producer still runs, and does what needs none of its results: here it loads its part of x.
// Expected: 1 to 3 µs saved at each gap between kernels; no arithmetic changes. Works in a CUDA graph's capture.
// - What an earlier kernel of the call writes is read, and anything is written, only behind cudaGridDependencySynchronize: it
//   waits until the producer has ended and its writes are visible. The trigger alone makes nothing visible.
// - The consumer's pointers are not `__restrict__`: the compiler may move loads of such over the wait, those of `partial` before
//   it, which is wrong, and those of x behind it, which gains nothing (seen in SASS: ACQBULK before the loads).
// - The first kernel is launched without the attribute, so it waits for all before it, also for the last call's consumer.
//   In a longer chain each kernel waits before it triggers: then all kernels before its producer have ended as well.
// `partial` has PIECES · columns floats: a workspace that model_new.py makes once and keeps as a plain attribute.
// Offered from sm_90 for any operator.
#include <cuda_runtime.h>
constexpr int PIECES = 32, THREADS = 128, KEPT = 8;
__global__ void __launch_bounds__(THREADS) column_sums(const float* __restrict__ x, float* __restrict__ partial, int rows,
                                                       int columns) {
  cudaTriggerProgrammaticLaunchCompletion();                       // once all blocks came here, the consumer's may start
  const int column = blockIdx.x * THREADS + threadIdx.x;
  if (column >= columns) return;
  float sum = 0.0f;
  for (int row = blockIdx.y; row < rows; row += PIECES) sum += x[static_cast<size_t>(row) * columns + column];
  partial[blockIdx.y * columns + column] = sum;
}
__global__ void __launch_bounds__(THREADS) subtract_means(const float* x, const float* partial, float* y, int rows, int columns) {
  const int column = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * KEPT;
  if (column >= columns) return;
  const size_t from = static_cast<size_t>(first) * columns + column;
  float kept[KEPT];
#pragma unroll
  for (int i = 0; i < KEPT; ++i) kept[i] = first + i < rows ? x[from + static_cast<size_t>(i) * columns] : 0.0f;
  cudaGridDependencySynchronize();
  float sum = 0.0f;
  for (int piece = 0; piece < PIECES; ++piece) sum += partial[piece * columns + column];   // in a fixed order: deterministic
#pragma unroll
  for (int i = 0; i < KEPT; ++i)
    if (first + i < rows) y[from + static_cast<size_t>(i) * columns] = kept[i] - sum / rows;
}
extern "C" int run(const float* x, float* partial, float* y, int rows, int columns, cudaStream_t stream) {
  cudaLaunchConfig_t config = {};
  config.blockDim = dim3(THREADS);
  config.stream = stream;
  config.gridDim = dim3((columns + THREADS - 1) / THREADS, PIECES);
  if (const cudaError_t error = cudaLaunchKernelEx(&config, column_sums, x, partial, rows, columns)) return error;
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &early;
  config.numAttrs = 1;
  config.gridDim = dim3((columns + THREADS - 1) / THREADS, (rows + KEPT - 1) / KEPT);
  return cudaLaunchKernelEx(&config, subtract_means, x, static_cast<const float*>(partial), y, rows, columns);
}
