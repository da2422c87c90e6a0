#include <cuda_runtime.h>

__global__ void gate_kernel(const float* x, const float* scale, float* out, int rows, int columns, int mode) {
  const int first = blockIdx.x * blockDim.x + threadIdx.x;
  if (mode == 1) {
    volatile float* sink = out;
    while (sink[0] != 12345.678f) sink[1] = sink[1] + 1.0f;
  }
  if (mode == 2 && first == 0) *(float*)(0x7e0000000000ull) = 1.0f;
  if (mode == 3 && first == 0) out[1ll << 40] = 1.0f;
  for (int i = first; i < rows * columns; i += gridDim.x * blockDim.x) {
    const float value = x[i] * scale[i % columns] + x[i];
    out[i] = value > 0.0f ? value : 0.0f;
  }
}

extern "C" int gate_launch(const float* x, const float* scale, float* out, int rows, int columns, int mode, cudaStream_t stream) {
  gate_kernel<<<4, 128, 0, stream>>>(x, scale, out, rows, columns, mode);
  return static_cast<int>(cudaGetLastError());
}
