#include "protection.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

namespace stitchsim {

namespace {
struct Protected {
  std::mutex mutex;
  std::map<std::uintptr_t, std::uintptr_t> ranges;  // begin to end
};
Protected& memory() {
  static Protected& one = *new Protected;           // never destroyed: launches may come from static destructors
  return one;
}
}  // namespace

Watch::Watch(const void* values, std::size_t bytes) {
  Protected& all = memory();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::set<std::uintptr_t> seen;
  for (std::size_t at = 0; !all.ranges.empty() && at + sizeof(std::uintptr_t) <= bytes; at += sizeof(std::uintptr_t)) {
    std::uintptr_t value;
    std::memcpy(&value, static_cast<const char*>(values) + at, sizeof value);
    auto next = all.ranges.upper_bound(value);
    if (next == all.ranges.begin()) continue;
    const auto [begin, end] = *--next;
    if (value >= end || !seen.insert(begin).second) continue;
    const char* const from = reinterpret_cast<const char*>(begin);
    held_.emplace_back(from, std::vector<char>(from, from + (end - begin)));
  }
}

bool Watch::changed() const {
  for (const auto& [from, before] : held_)
    if (std::memcmp(from, before.data(), before.size()) != 0) return true;
  return false;
}

}  // namespace stitchsim

void stitchsim_protect(const void* begin, unsigned long bytes) {
  const std::lock_guard<std::mutex> lock(stitchsim::memory().mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  if (bytes != 0) stitchsim::memory().ranges[at] = at + bytes;
}
void stitchsim_protect_nothing() {
  const std::lock_guard<std::mutex> lock(stitchsim::memory().mutex);
  stitchsim::memory().ranges.clear();
}
