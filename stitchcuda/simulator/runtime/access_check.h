// Follows the accesses of device code to memory, and looks for three mistakes: races, accesses out of bounds, misaligned ones.
// It also notes reads of shared memory that the block has not written: no mistake where the value is dropped, and the cause where
// an output is wrong.
//
// A race: two threads at one address, at least one of them writing, with nothing that puts one before the other.
// The simulator runs a block's threads one after another, so a race that gives wrong results on a GPU gives right ones here.
// Out of bounds: in device memory but in no block of it, or beyond the dynamic shared memory of the launch. Misaligned: at an
// address that is no multiple of what its type wants (-fsanitize=alignment), which a GPU does not take.
//
// Device code is compiled with -fsanitize=thread, which calls a function before each access; instead of the sanitizer's own
// runtime these are ours (access_check.cpp). In a launch that is checked they keep, for each address of shared and of device
// memory at which an access began, who wrote and who read last. In order are accesses before and after a barrier, for threads of one warp also
// those before and after a warp operation. Volatile and atomic accesses are no races. A kernel with memory fences may order
// accesses to device memory by them, which is not followed: there only shared memory is looked at. A write that changes nothing is
// no race. Races are looked for among the first `kMost` accesses of a kernel in one call of a program, once it has had `kManyCalls`
// times as many among `kLater`; bounds in all.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stitchsim {

constexpr unsigned long kMost = 500'000;
constexpr unsigned long kManyCalls = 4, kLater = 50'000;

struct Range {
  std::size_t begin, end;
};

// There is one checked launch at a time. With `most` other than 0 all its blocks run on one thread of the operating system.
void begin_access_check(unsigned long most);  // `most`: accesses among which races are looked for
unsigned long end_access_check();             // how many these were
std::string found_mistake();                  // in this launch: the rest of a sentence that begins with the kernel, or ""
std::string found_unwritten();                // likewise, of the first read of shared memory that its block has not written
void begin_block_check(unsigned long block, Range dynamic_shared, std::size_t used);  // `used`: its bytes that were asked for
void end_block_check();                     // both on the thread that runs the block
void know_shared(const void* variable, std::size_t bytes);
void pass_barrier();                        // all threads of the block
void pass_warp_operation(int warp);

}  // namespace stitchsim
