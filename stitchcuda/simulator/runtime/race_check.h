// Looks for races: two threads at one address, at least one of them writing, with nothing that puts one before the other.
//
// The simulator runs a block's threads one after another, so a race that gives wrong results on a GPU gives right ones here.
// Device code is compiled with -fsanitize=thread, which calls a function before each access; instead of the sanitizer's own
// runtime these are ours (race_check.cpp). In a launch that is checked they keep, for each four bytes of shared and of device
// memory, who wrote and who read them last. In order are accesses before and after a barrier, for threads of one warp also
// those before and after a warp operation. Volatile and atomic accesses are no races. A kernel with memory fences may order
// accesses to device memory by them, which is not followed: there only shared memory is looked at. A write that changes nothing is
// no race. Only the first `kMost` accesses of a kernel in one call of a program are looked at.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace stitchsim {

constexpr unsigned long kMost = 500'000;

struct Range {
  std::size_t begin, end;
};

// Of the operating system thread that runs a checked launch; there is one such launch at a time.
void begin_race_check(unsigned long most);  // `most`: accesses to look at
unsigned long end_race_check();             // how many were looked at
std::string found_race();                   // in this launch: a sentence, or ""
void begin_block_check(unsigned long block, Range dynamic_shared);  // until `end_block_check`, on the calling thread
void end_block_check();
void know_shared(const void* variable, std::size_t bytes);
void pass_barrier();                        // all threads of the block
void pass_warp_operation(int warp);

}  // namespace stitchsim
