#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
using tvm::ffi::TensorView;
__global__ void fused(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void fused_run(TensorView acc, TensorView y) {
  int n = (int)(y.size(0) * y.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  fused<<<(n + 255) / 256, 256, 0, stream>>>((const float*)acc.data_ptr(), (float*)y.data_ptr(), n);
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fused_run, fused_run);
