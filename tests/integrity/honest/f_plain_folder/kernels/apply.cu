#include "common.cuh"
namespace {
__global__ void kernel(const float* x, const float2* stats, const float* w, const float* b, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float2 s = stats[i / width];
  y[i] = (x[i] - s.x) * s.y * w[i % width] + b[i % width];
}
}
void apply(tvm::ffi::TensorView x, tvm::ffi::TensorView stats, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int width = (int)x.size(1), n = (int)x.size(0) * width;
  kernel<<<(n + 255) / 256, 256, 0, stream_of(x)>>>((const float*)x.data_ptr(), (const float2*)stats.data_ptr(), (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), n, width);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(apply, apply);
