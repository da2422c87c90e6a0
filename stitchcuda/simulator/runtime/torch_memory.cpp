// Lets torch's tensors lie in device memory (device_memory.h). A library of its own: the only part that knows torch's headers.
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "device_memory.h"

namespace {
struct DeviceMemory final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    void* const pointer = stitchsim_allocate(bytes);
    TORCH_CHECK(pointer != nullptr || bytes == 0, "not enough memory: you tried to allocate ", bytes, " bytes.");
    return {pointer, pointer, &stitchsim_free, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &stitchsim_free; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
};
}  // namespace

extern "C" __attribute__((visibility("default"))) void stitchsim_take_over_torch() {
  static DeviceMemory& one = *new DeviceMemory;  // as it outlives every tensor, it is never destroyed
  c10::SetCPUAllocator(&one, 255);
}
