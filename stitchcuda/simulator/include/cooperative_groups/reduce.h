// cooperative_groups::reduce over tiles and coalesced groups.
#pragma once
#include "../cooperative_groups.h"

namespace cooperative_groups {

template <class T = void> struct plus { T operator()(T a, T b) const { return a + b; } };
template <class T = void> struct less { T operator()(T a, T b) const { return b < a ? b : a; } };
template <class T = void> struct greater { T operator()(T a, T b) const { return a < b ? b : a; } };
template <class T = void> struct bit_and { T operator()(T a, T b) const { return a & b; } };
template <class T = void> struct bit_or { T operator()(T a, T b) const { return a | b; } };
template <class T = void> struct bit_xor { T operator()(T a, T b) const { return a ^ b; } };

// A butterfly when the size is a power of two, so that floating-point sums add in the device's order; else one by one.
template <class Group, class T, class Combine> T reduce(const Group& group, T value, Combine combine) {
  const unsigned size = group.size();
  if ((size & (size - 1)) == 0) {
    for (unsigned step = size / 2; step > 0; step /= 2) value = combine(value, group.shfl_xor(value, step));
    return value;
  }
  T result = group.shfl(value, 0);
  for (unsigned rank = 1; rank < size; rank++) result = combine(result, group.shfl(value, (int)rank));
  return result;
}

}  // namespace cooperative_groups
