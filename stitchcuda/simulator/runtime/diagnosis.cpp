// What a user reads when a block cannot go on.
#include "diagnosis.h"

#include <cstdio>

#include "block.h"

namespace stitchsim {

const char* name_of(Operation operation) {
  switch (operation) {
    case Operation::Shuffle: return "a shuffle";
    case Operation::Vote: return "a vote";
    case Operation::Match: return "a match";
    case Operation::Reduce: return "a reduction";
    default: return "__syncwarp";
  }
}

std::string in_hex(unsigned mask) {
  char text[16];
  snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

std::string Block::where() const {
  return std::string("kernel ") + call_.kernel + ", block (" + std::to_string(blockIdx.x) + ", " + std::to_string(blockIdx.y) + ", " +
         std::to_string(blockIdx.z) + ")";
}

std::string Block::deadlock() const {
  if (at_barrier_ > 0 && at_barrier_ + returned_ == size_)
    return where() + ": " + std::to_string(at_barrier_) + " threads wait at a block barrier that " + std::to_string(returned_) +
           " others never reach, because they have returned; let every thread of the block reach the barrier";
  std::string text = where() + ": deadlock, " + std::to_string(at_barrier_) + " threads wait at a block barrier and " +
                     std::to_string(returned_) + " have returned";
  for (std::size_t warp = 0; warp < warps_.size(); warp++)
    for (const Rendezvous& meeting : warps_[warp].meetings)
      if (meeting.arrived != 0)
        return text + ", while lanes " + in_hex(meeting.arrived) + " of warp " + std::to_string(warp) + " wait at " +
               name_of(meeting.operation) + " for all lanes in mask " + in_hex(meeting.mask);
  return text;
}

std::string describe_refused(const Config& config, const char* kernel, cudaError_t error, std::size_t allowed) {
  const auto size = [](dim3 given) {
    return "(" + std::to_string(given.x) + ", " + std::to_string(given.y) + ", " + std::to_string(given.z) + ")";
  };
  const std::string head = std::string("the launch of kernel ") + kernel + " failed: ";
  if (error == cudaErrorInvalidValue)
    return head + "it asks for " + std::to_string(config.dynamic_shared) + " bytes of dynamic shared memory where " +
           std::to_string(allowed) + " are allowed (cudaFuncSetAttribute allows up to 232448)";
  return head + "a grid of " + size(config.grid) + " blocks of " + size(config.block) +
         " threads; a block has 1 to 1024 threads (64 along z), a grid 1 to 65535 blocks along y and z";
}

}  // namespace stitchsim
