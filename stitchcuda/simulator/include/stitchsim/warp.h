// Warp operations: shuffles, votes, matches and reductions, each a meeting of the lanes in the mask (exchange.h).
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstring>
#include <type_traits>

#include "exchange.h"

namespace stitchsim {

// Types that nvcc's shuffles take; anything else needs an explicit conversion there too.
template <class T>
constexpr bool shuffles = std::is_arithmetic<T>::value || std::is_same<T, __half>::value || std::is_same<T, __half2>::value ||
                          std::is_same<T, __nv_bfloat16>::value || std::is_same<T, __nv_bfloat162>::value;

template <class T> inline T seen(const Meeting& meeting, int lane) {
  T value;
  std::memcpy(&value, &meeting.shown[lane], sizeof value);
  return value;
}

// What CUDA leaves undefined: a number far from all others, of either sign.
template <class T> inline T undefined(int source) {
  unsigned char bytes[sizeof(T)];
  std::memset(bytes, 0x7f, sizeof bytes);
  if (source & 1) bytes[sizeof bytes - 1] = 0xff;
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// The value of lane `source`: the caller's own if it is in another segment, undefined if there is no such thread.
template <class T> inline T shuffle(unsigned mask, T value, int source, bool in_segment) {
  static_assert(shuffles<T>, "shuffles take arithmetic types, half and bfloat16");
  const Meeting meeting = meet(Operation::Shuffle, mask, &value, sizeof value);
  if (!in_segment) return value;
  return meeting.present >> source & 1 ? seen<T>(meeting, source) : undefined<T>(source);
}

inline int segment_start(int width) { return here.lane & ~(width - 1); }

template <class T, class Combine> inline T reduce(unsigned mask, T value, Combine combine) {
  const Meeting meeting = meet(Operation::Reduce, mask, &value, sizeof value);
  unsigned left = meeting.present;
  T result = seen<T>(meeting, __builtin_ctz(left));
  for (left &= left - 1; left != 0; left &= left - 1) result = combine(result, seen<T>(meeting, __builtin_ctz(left)));
  return result;
}

}  // namespace stitchsim

template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
  return stitchsim::shuffle(mask, value, stitchsim::segment_start(width) | (source & (width - 1)), true);
}
// The device looks at the lowest five bits of a distance only.
template <class T> inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int source = stitchsim::here.lane - (int)(delta & 31);
  return stitchsim::shuffle(mask, value, source & 31, source >= stitchsim::segment_start(width));
}
template <class T> inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
  const int source = stitchsim::here.lane + (int)(delta & 31);
  return stitchsim::shuffle(mask, value, source & 31, source < stitchsim::segment_start(width) + width);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
  const int source = stitchsim::here.lane ^ (lane_mask & 31);
  return stitchsim::shuffle(mask, value, source, source < stitchsim::segment_start(width) + width);
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const unsigned char vote = predicate != 0;
  const stitchsim::Meeting meeting = stitchsim::meet(stitchsim::Operation::Vote, mask, &vote, 1);
  unsigned result = 0;
  for (unsigned left = meeting.present; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    result |= (unsigned)stitchsim::seen<unsigned char>(meeting, lane) << lane;
  }
  return result;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate == 0) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  const unsigned char nothing = 0;
  stitchsim::meet(stitchsim::Operation::Synchronize, mask, &nothing, 1);
}
// Lanes are converged when they wait at the same call, told apart by its line.
inline unsigned __activemask(int line = __builtin_LINE()) { return stitchsim::converged_lanes(line); }

template <class T> inline unsigned __match_any_sync(unsigned mask, T value) {
  const stitchsim::Meeting meeting = stitchsim::meet(stitchsim::Operation::Match, mask, &value, sizeof value);
  unsigned result = 0;
  for (unsigned left = meeting.present; left != 0; left &= left - 1) {
    const int lane = __builtin_ctz(left);
    if (std::memcmp(&meeting.shown[lane], &value, sizeof value) == 0) result |= 1u << lane;
  }
  return result;
}
template <class T> inline unsigned __match_all_sync(unsigned mask, T value, int* all_equal) {
  const stitchsim::Meeting meeting = stitchsim::meet(stitchsim::Operation::Match, mask, &value, sizeof value);
  *all_equal = 1;
  for (unsigned left = meeting.present; left != 0; left &= left - 1)
    if (std::memcmp(&meeting.shown[__builtin_ctz(left)], &value, sizeof value) != 0) *all_equal = 0;
  return *all_equal ? mask : 0u;
}

#define STITCHSIM_REDUCTION(T, NAME, EXPRESSION) \
  inline T __reduce_##NAME##_sync(unsigned mask, T value) { return stitchsim::reduce(mask, value, [](T a, T b) -> T { return EXPRESSION; }); }
STITCHSIM_REDUCTION(int, add, (int)((unsigned)a + (unsigned)b))
STITCHSIM_REDUCTION(unsigned, add, a + b)
STITCHSIM_REDUCTION(int, min, a < b ? a : b)
STITCHSIM_REDUCTION(unsigned, min, a < b ? a : b)
STITCHSIM_REDUCTION(int, max, a > b ? a : b)
STITCHSIM_REDUCTION(unsigned, max, a > b ? a : b)
STITCHSIM_REDUCTION(unsigned, and, a & b)
STITCHSIM_REDUCTION(unsigned, or, a | b)
STITCHSIM_REDUCTION(unsigned, xor, a ^ b)
#undef STITCHSIM_REDUCTION
