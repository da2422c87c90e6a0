// Binds the three launchers; the tensors are the benchmark's own, so only their device is checked.

#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <cstdint>

extern "C" int triad_launch(float* a, const float* b, const float* c, long long count, cudaStream_t stream);
extern "C" int fma_chains_launch(float* out, const float* start, long long count, float factor, float summand, int rounds,
                                 cudaStream_t stream);
extern "C" int pointer_chase_launch(int* ends, const int* starts, const int* nodes, long long chains, int hops,
                                    cudaStream_t stream);

namespace {

using tvm::ffi::TensorView;

cudaStream_t stream_of(const TensorView& tensor) {
  if (tensor.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "expected a CUDA tensor";
  return static_cast<cudaStream_t>(TVMFFIEnvGetStream(kDLCUDA, tensor.device().device_id));
}

template <typename Element>
Element* data(const TensorView& tensor) {
  return static_cast<Element*>(tensor.data_ptr());
}

void check(int error) {
  if (error) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(static_cast<cudaError_t>(error));
}

void triad(TensorView a, TensorView b, TensorView c) {
  check(triad_launch(data<float>(a), data<const float>(b), data<const float>(c), a.numel(), stream_of(a)));
}

void fma_chains(TensorView out, TensorView start, double factor, double summand, std::int64_t rounds) {
  check(fma_chains_launch(data<float>(out), data<const float>(start), start.numel(), static_cast<float>(factor),
                          static_cast<float>(summand), static_cast<int>(rounds), stream_of(out)));
}

void pointer_chase(TensorView ends, TensorView starts, TensorView nodes, std::int64_t hops) {
  check(pointer_chase_launch(data<int>(ends), data<const int>(starts), data<const int>(nodes), starts.numel(),
                             static_cast<int>(hops), stream_of(ends)));
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(triad, triad);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(fma_chains, fma_chains);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pointer_chase, pointer_chase);
