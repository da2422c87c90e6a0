// What torch offers to CUDA sources through ATen/cuda and c10/cuda, for one simulated device whose streams are names only.
// The headers of those names in include/torch_cuda all lead here.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <cuda_runtime.h>

#include <optional>

namespace at {  // torch has it for CUDA compilers only; in namespace torch too, by its own using-directive
template <class T> struct RestrictPtrTraits {
  typedef T* __restrict__ PtrType;
};
}  // namespace at

namespace c10::cuda {

using DeviceIndex = c10::DeviceIndex;

class CUDAStream {
 public:
  CUDAStream(cudaStream_t stream = nullptr) : stream_(stream) {}
  operator cudaStream_t() const { return stream_; }
  cudaStream_t stream() const { return stream_; }
  DeviceIndex device_index() const { return 0; }
  void synchronize() const {}
  bool query() const { return true; }

 private:
  cudaStream_t stream_;
};
inline CUDAStream getCurrentCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getDefaultCUDAStream(DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(bool = false, DeviceIndex = -1) { return {}; }
inline CUDAStream getStreamFromPool(int, DeviceIndex = -1) { return {}; }
inline void setCurrentCUDAStream(CUDAStream) {}

class CUDAGuard {
 public:
  template <class Device> explicit CUDAGuard(const Device&) {}
  template <class Device> void set_device(const Device&) {}
};
class OptionalCUDAGuard {
 public:
  OptionalCUDAGuard() = default;
  template <class Device> explicit OptionalCUDAGuard(const Device&) {}
};
class CUDAStreamGuard {
 public:
  explicit CUDAStreamGuard(CUDAStream) {}
};

inline DeviceIndex current_device() { return 0; }
inline DeviceIndex device_count() { return 1; }
inline void set_device(DeviceIndex) {}
inline void device_synchronize() {}

}  // namespace c10::cuda

namespace at::cuda {

using namespace c10::cuda;

inline cudaDeviceProp* getDeviceProperties(c10::DeviceIndex) {
  static cudaDeviceProp properties = [] {
    cudaDeviceProp asked;
    cudaGetDeviceProperties(&asked, 0);
    return asked;
  }();
  return &properties;
}
inline cudaDeviceProp* getCurrentDeviceProperties() { return getDeviceProperties(0); }
inline int warp_size() { return 32; }
inline bool is_available() { return true; }

}  // namespace at::cuda

#define C10_CUDA_CHECK(call)                                                                      \
  do {                                                                                            \
    const cudaError_t stitchsim_status = (call);                                                  \
    TORCH_CHECK(stitchsim_status == cudaSuccess, "CUDA error: ", cudaGetErrorString(stitchsim_status)); \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(call) C10_CUDA_CHECK(call)
#define CUDA_KERNEL_LOOP(i, n) for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += (int64_t)blockDim.x * gridDim.x)
