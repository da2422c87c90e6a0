// CUDA runtime API: the device, as one H200 answers (132 multiprocessors, compute capability 9.0), and occupancy.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>

#include "grid.h"

using stitchsim::record_error;

namespace {
constexpr int kMultiprocessors = 132, kThreadsPerMultiprocessor = 2048, kBlocksPerMultiprocessor = 32, kWarp = 32;
constexpr int kSharedPerBlock = 48 * 1024, kSharedOptIn = 227 * 1024, kSharedPerMultiprocessor = 228 * 1024, kSharedReserved = 1024;
constexpr int kRegisters = 65536, kL2 = 60 * 1024 * 1024, kBusBits = 6144;
constexpr int kAssumedRegisters = 32;  // per thread: nothing here allocates registers
constexpr std::size_t kDeviceBytes = 141ull * 1000 * 1000 * 1000;

int blocks_per_multiprocessor(int threads, std::size_t dynamic_shared) {
  if (threads <= 0 || threads > 1024) return 0;
  const int warps = (threads + kWarp - 1) / kWarp;
  const int by_threads = kThreadsPerMultiprocessor / (warps * kWarp);
  const int by_registers = kRegisters / (warps * kWarp * kAssumedRegisters);
  const int by_shared = static_cast<int>(kSharedPerMultiprocessor / (dynamic_shared + kSharedReserved));
  return std::min({by_threads, by_registers, by_shared, kBlocksPerMultiprocessor});
}
}  // namespace

extern "C" {

cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
// -1 is what torch calls the device of a CPU tensor, which is what programs have here.
cudaError_t cudaSetDevice(int device) { return record_error(device == 0 || device == -1 ? cudaSuccess : cudaErrorInvalidDevice); }
cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaDeviceReset() { return cudaSuccess; }
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return cudaSuccess; }
cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return record_error(cudaErrorInvalidDevice);
  cudaDeviceProp p{};
  std::snprintf(p.name, sizeof p.name, "NVIDIA H200");
  p.major = 9;
  p.minor = 0;
  p.totalGlobalMem = kDeviceBytes;
  p.multiProcessorCount = kMultiprocessors;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7fffffff;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.warpSize = kWarp;
  p.regsPerBlock = p.regsPerMultiprocessor = kRegisters;
  p.sharedMemPerBlock = kSharedPerBlock;
  p.sharedMemPerBlockOptin = kSharedOptIn;
  p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  p.reservedSharedMemPerBlock = kSharedReserved;
  p.totalConstMem = 65536;
  p.l2CacheSize = kL2;
  p.memoryBusWidth = kBusBits;
  p.textureAlignment = 512;
  p.concurrentKernels = 1;
  p.unifiedAddressing = 1;
  p.managedMemory = 1;
  *properties = p;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return record_error(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX: *value = 1024; break;
    case cudaDevAttrMaxBlockDimY: *value = 1024; break;
    case cudaDevAttrMaxBlockDimZ: *value = 64; break;
    case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
    case cudaDevAttrMaxGridDimY: *value = 65535; break;
    case cudaDevAttrMaxGridDimZ: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = kSharedPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = kSharedOptIn; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = kSharedPerMultiprocessor; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = kSharedReserved; break;
    case cudaDevAttrWarpSize: *value = kWarp; break;
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = kThreadsPerMultiprocessor; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = kBlocksPerMultiprocessor; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = kRegisters; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = kRegisters; break;
    case cudaDevAttrL2CacheSize: *value = kL2; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = kBusBits; break;
    case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrTotalConstantMemory: *value = 65536; break;
    case cudaDevAttrConcurrentKernels: *value = 1; break;
    case cudaDevAttrUnifiedAddressing: *value = 1; break;
    case cudaDevAttrManagedMemory: *value = 1; break;
    case cudaDevAttrCooperativeLaunch: *value = 0; break;  // an H200 can, the simulator cannot
    default: return record_error(cudaErrorNotSupported);
  }
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;  // carve-out and the like: hints
  if (value < 0 || value > kSharedOptIn) return record_error(cudaErrorInvalidValue);
  stitchsim::allow_dynamic_shared(value);
  return cudaSuccess;
}
cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = cudaFuncAttributes{};
  attributes->maxThreadsPerBlock = 1024;
  attributes->numRegs = kAssumedRegisters;
  attributes->maxDynamicSharedSizeBytes = kSharedOptIn;
  attributes->ptxVersion = attributes->binaryVersion = 90;
  return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int threads, size_t dynamic_shared) {
  *blocks = blocks_per_multiprocessor(threads, dynamic_shared);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*, int threads, size_t dynamic_shared, unsigned) {
  *blocks = blocks_per_multiprocessor(threads, dynamic_shared);
  return cudaSuccess;
}

}
