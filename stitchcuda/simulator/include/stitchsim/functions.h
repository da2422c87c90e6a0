// C++ forms of runtime API functions that NVIDIA's headers define for nvcc only.
#pragma once
#include <cuda_runtime.h>

#include <cstring>
#include <tuple>
#include <utility>

#include "launch.h"

template <class R, class... P> inline cudaError_t cudaFuncSetAttribute(R (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  return ::cudaFuncSetAttribute((const void*)kernel, attribute, value);
}
template <class R, class... P> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, R (*kernel)(P...)) {
  return ::cudaFuncGetAttributes(attributes, (const void*)kernel);
}
template <class R, class... P> inline cudaError_t cudaFuncSetCacheConfig(R (*kernel)(P...), cudaFuncCache preference) {
  return ::cudaFuncSetCacheConfig((const void*)kernel, preference);
}

namespace stitchsim {
__attribute__((visibility("default"))) bool know_symbol(const void* symbol, std::size_t bytes);  // runtime/device_memory.h
template <class T> inline const void* whole_symbol(T& symbol) {
  know_symbol((const void*)&symbol, sizeof symbol);
  return (const void*)&symbol;
}
}  // namespace stitchsim

template <class T>
inline cudaError_t cudaMemcpyToSymbol(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return ::cudaMemcpyToSymbol(stitchsim::whole_symbol(symbol), from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void* to, T& symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return ::cudaMemcpyFromSymbol(to, stitchsim::whole_symbol(symbol), bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyToSymbolAsync(T& symbol, const void* from, size_t bytes, size_t offset = 0,
                                           cudaMemcpyKind kind = cudaMemcpyHostToDevice, cudaStream_t = nullptr) {
  return ::cudaMemcpyToSymbol(stitchsim::whole_symbol(symbol), from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbolAsync(void* to, T& symbol, size_t bytes, size_t offset = 0,
                                             cudaMemcpyKind kind = cudaMemcpyDeviceToHost, cudaStream_t = nullptr) {
  return ::cudaMemcpyFromSymbol(to, stitchsim::whole_symbol(symbol), bytes, offset, kind);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void** address, T& symbol) {
  return ::cudaGetSymbolAddress(address, stitchsim::whole_symbol(symbol));
}
template <class T> inline cudaError_t cudaGetSymbolSize(size_t* bytes, T& symbol) {
  *bytes = sizeof(symbol);
  return cudaSuccess;
}

namespace stitchsim {

// cudaLaunchKernel and cudaLaunchKernelEx: the rewriter renames them, since a launch needs the kernel's type.
template <class... P, std::size_t... I>
inline void launch_packed(const Config& config, void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  make_launch(config, "(launched by address)", kernel)(*static_cast<std::remove_reference_t<P>*>(arguments[I])...);
}
template <class... P>
inline cudaError_t launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared = 0, cudaStream_t = nullptr) {
  launch_packed(Config(grid, block, shared), kernel, arguments, std::index_sequence_for<P...>());
  return cudaPeekAtLastError();
}
template <class... P, class... A>
inline cudaError_t launch_kernel_ex(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... arguments) {
  for (unsigned i = 0; i < config->numAttrs; i++)
    if (config->attrs[i].id == cudaLaunchAttributeClusterDimension || config->attrs[i].id == cudaLaunchAttributeCooperative)
      return cudaErrorNotSupported;
  make_launch(Config(config->gridDim, config->blockDim, config->dynamicSmemBytes), "(launched by address)",
              kernel)(static_cast<P>(std::forward<A>(arguments))...);
  return cudaPeekAtLastError();
}

}  // namespace stitchsim
