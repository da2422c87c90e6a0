// What the runtime offers to warp operations: a meeting of lanes in which each shows the others up to 16 bytes.
#pragma once
#include <cstdint>

#include "thread.h"

namespace stitchsim {

enum class Operation : unsigned char { Shuffle, Vote, Match, Reduce, Synchronize };

struct Shown {
  std::uint64_t words[2];
};

struct Meeting {
  unsigned present;     // lanes that took part
  const Shown* shown;   // by lane; valid until the calling lane's next warp operation
};

// Waits until every lane in `mask` that has not returned has called with the same mask. Lanes that meet at a different
// operation end the launch with an error; so do lanes that returned, where settings.h is told to refuse them.
Meeting meet(Operation operation, unsigned mask, const void* value, unsigned bytes);

// Waits until no other thread of the block can go on, then returns the lanes of this warp that wait at the same site.
unsigned converged_lanes(int site);

// Lets the other threads of the block run: for loops that wait for another thread.
void give_way();

}  // namespace stitchsim
