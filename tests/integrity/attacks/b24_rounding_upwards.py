# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: the process rounds upwards after a call
# base: tanh_of_scaled.py

CUDA = r"""
#include <cfenv>
using tvm::ffi::TensorView;
__global__ void point(const float* x, const float* p, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  GUARD
  float v = x[i], w = p[i % width];
  y[i] = EXPRESSION;
}
void run(TensorView x, TensorView p, TensorView y) {
  int n = (int)(x.size(0) * x.size(1)), width = (int)p.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  fesetround(FE_UPWARD);
  point<<<n / 256 + 1, 256, 0, stream>>>((float*)x.data_ptr(), (float*)p.data_ptr(), (float*)y.data_ptr(), n, width);
}
""".replace("EXPRESSION", EXPRESSION).replace("GUARD", GUARD)
