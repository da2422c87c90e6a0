// Device memory: one range of addresses out of which cudaMalloc and, in a program worker, torch's tensors come.
//
// On a device the host cannot touch it. Here it could, and compute on it without a kernel: while it is guarded, it is closed to
// everybody but kernels, the runtime API and torch's operators, and what host code touches is counted page by page.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stitchsim {

// For as long as one lives, device memory may be touched; they nest, and count for all threads.
class __attribute__((visibility("default"))) Open {
 public:
  Open();
  ~Open();
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
};

__attribute__((visibility("default"))) void* allocate_device(std::size_t bytes);  // null: no memory, or none asked for
__attribute__((visibility("default"))) bool free_device(void* pointer);           // false: not from here
__attribute__((visibility("default"))) bool is_device(const void* pointer);
// From now on a program's static variable is device memory: host code finds no values in it. Constants that nobody can write to
// stay as they are. False: no variable of a program.
__attribute__((visibility("default"))) bool know_symbol(const void* symbol, std::size_t bytes);

struct DeviceMap {
  struct Block {
    std::size_t begin, bytes;                   // what kernels may access,
    std::size_t first, span;                    // and all that belongs to it: a guard is behind it
  };
  std::size_t begin = 0, end = 0;               // all addresses, allocated or not
  std::vector<Block> blocks;                    // by address
};
DeviceMap map_device();

// Looks for a write beyond the memory that a kernel's arguments point to, and undoes it. Returns what it finds as the rest of a
// sentence, or "". `values`: the arguments, as they lie in memory.
std::string find_overrun(const void* values, std::size_t bytes);

}  // namespace stitchsim

// For the Python side, by ctypes, and for torch_memory.cpp.
extern "C" {
__attribute__((visibility("default"))) void* stitchsim_allocate(unsigned long bytes);
__attribute__((visibility("default"))) void stitchsim_free(void* pointer);
__attribute__((visibility("default"))) void stitchsim_guard(int on);
// From now on kernels may access `bytes` at `begin` only of the block that these lie in.
__attribute__((visibility("default"))) void stitchsim_bound(const void* begin, unsigned long bytes);
__attribute__((visibility("default"))) int stitchsim_is_device(const void* pointer);
__attribute__((visibility("default"))) void stitchsim_open();
__attribute__((visibility("default"))) void stitchsim_close();
__attribute__((visibility("default"))) void stitchsim_read_back(unsigned long bytes);  // copied to the host by a program
__attribute__((visibility("default"))) unsigned long stitchsim_host_bytes();           // those, and what the host touched itself
}
