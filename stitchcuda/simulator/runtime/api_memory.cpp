// CUDA runtime API: memory. All of it is device memory (device_memory.h), pinned and managed too; copies are done when the call
// returns, whatever the stream.
#include <cuda_runtime_api.h>

#include <cstring>

#include "device_memory.h"
#include "grid.h"
#include "settings.h"

using stitchsim::Open;
using stitchsim::record_error;

namespace {
constexpr std::size_t kDeviceBytes = 141ull * 1000 * 1000 * 1000;  // an H200's; the host may have less and says so itself

cudaError_t allocate(void** pointer, std::size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  *pointer = stitchsim::allocate_device(bytes);
  if (*pointer == nullptr) return record_error(cudaErrorMemoryAllocation);
  const Open open;
  if (stitchsim::read_settings().check) std::memset(*pointer, 0xff, bytes);
  return cudaSuccess;
}

cudaError_t release(void* pointer) {
  return pointer == nullptr || stitchsim::free_device(pointer) ? cudaSuccess : record_error(cudaErrorInvalidValue);
}

// To memory that the host may touch without being counted, whatever kind of copy it calls it.
void count(const void* to, std::size_t bytes, bool from_device) {
  if (from_device && !stitchsim::is_device(to)) stitchsim_read_back(bytes);
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind = cudaMemcpyDefault) {
  const Open open;
  count(to, bytes, kind == cudaMemcpyDeviceToHost || stitchsim::is_device(from));
  if (bytes != 0 && (to == nullptr || from == nullptr)) return record_error(cudaErrorInvalidValue);
  if (bytes != 0) std::memmove(to, from, bytes);
  return cudaSuccess;
}

cudaError_t copy_2d(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width, std::size_t height) {
  if (width > to_pitch || width > from_pitch) return record_error(cudaErrorInvalidValue);
  const Open open;
  count(to, width * height, stitchsim::is_device(from));
  for (std::size_t row = 0; row < height; row++)
    std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  return cudaSuccess;
}

cudaError_t set(void* to, int value, std::size_t bytes) {
  if (bytes != 0 && to == nullptr) return record_error(cudaErrorInvalidValue);
  const Open open;
  if (bytes != 0) std::memset(to, value, bytes);
  return cudaSuccess;
}

// A symbol is a plain variable here, so its address is the symbol; null: it is none.
char* find_symbol(const void* symbol, std::size_t bytes) {
  return stitchsim::know_symbol(symbol, bytes) ? static_cast<char*>(const_cast<void*>(symbol)) : nullptr;
}

cudaError_t copy_to_symbol(const void* symbol, const void* from, std::size_t bytes, std::size_t offset) {
  char* const to = find_symbol(symbol, offset + bytes);
  return to == nullptr ? record_error(cudaErrorInvalidSymbol) : copy(to + offset, from, bytes);
}

cudaError_t copy_from_symbol(void* to, const void* symbol, std::size_t bytes, std::size_t offset) {
  const char* const from = find_symbol(symbol, offset + bytes);
  return from == nullptr ? record_error(cudaErrorInvalidSymbol) : copy(to, from + offset, bytes);
}
}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** pointer, size_t bytes) { return allocate(pointer, bytes); }
cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return allocate(pointer, bytes); }
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes); }
cudaError_t cudaMallocManaged(void** pointer, size_t bytes, unsigned) { return allocate(pointer, bytes); }
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t) { return allocate(pointer, bytes); }
cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return allocate(pointer, *pitch * height);
}
cudaError_t cudaFree(void* pointer) { return release(pointer); }
cudaError_t cudaFreeHost(void* pointer) { return release(pointer); }
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return release(pointer); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return cudaSuccess;
}
cudaError_t cudaHostRegister(void*, size_t, unsigned) { return cudaSuccess; }
cudaError_t cudaHostUnregister(void*) { return cudaSuccess; }

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) { return copy(to, from, bytes, kind); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return copy(to, from, bytes, kind);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) { return copy(to, from, bytes); }
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t) { return copy(to, from, bytes); }
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, cudaMemcpyKind) {
  return copy_2d(to, to_pitch, from, from_pitch, width, height);
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind, cudaStream_t) {
  return copy_2d(to, to_pitch, from, from_pitch, width, height);
}

cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind) {
  return copy_to_symbol(symbol, from, bytes, offset);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind) {
  return copy_from_symbol(to, symbol, bytes, offset);
}
cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset, cudaMemcpyKind, cudaStream_t) {
  return copy_to_symbol(symbol, from, bytes, offset);
}
cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind, cudaStream_t) {
  return copy_from_symbol(to, symbol, bytes, offset);
}
cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  *address = find_symbol(symbol, 1);             // stitchsim/functions.h knows its size
  return *address == nullptr ? record_error(cudaErrorInvalidSymbol) : cudaSuccess;
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) { return set(to, value, bytes); }
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t) { return set(to, value, bytes); }
cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  const Open open;
  for (size_t row = 0; row < height; row++) std::memset(static_cast<char*>(to) + row * pitch, value, width);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = kDeviceBytes;
  *total = kDeviceBytes;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  *attributes = cudaPointerAttributes{};
  attributes->type = cudaMemoryTypeDevice;
  attributes->devicePointer = attributes->hostPointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

}
