// The binding of the test programs: three tensors and two numbers, as generated bindings pass them.
#include <cuda_runtime.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

extern "C" int run(void* a, void* b, void* c, int n, int m, cudaStream_t stream);

void call(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c, int64_t n, int64_t m) {
  const DLDevice device = a.device();
  if (device.device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "a CUDA tensor is needed";
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const int status = run(a.data_ptr(), b.data_ptr(), c.data_ptr(), static_cast<int>(n), static_cast<int>(m), stream);
  if (status != 0) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(static_cast<cudaError_t>(status));
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(call, call);
