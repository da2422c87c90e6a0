// cooperative_groups::inclusive_scan and exclusive_scan over tiles and coalesced groups.
#pragma once
#include "reduce.h"

namespace cooperative_groups {

template <class Group, class T, class Combine> T inclusive_scan(const Group& group, T value, Combine combine) {
  for (unsigned step = 1; step < group.size(); step *= 2) {
    const T below = group.shfl_up(value, step);
    if (group.thread_rank() >= step) value = combine(below, value);
  }
  return value;
}
template <class Group, class T> T inclusive_scan(const Group& group, T value) { return inclusive_scan(group, value, plus<T>()); }

template <class Group, class T, class Combine> T exclusive_scan(const Group& group, T value, Combine combine) {
  const T below = group.shfl_up(inclusive_scan(group, value, combine), 1);
  return group.thread_rank() == 0 ? T() : below;
}
template <class Group, class T> T exclusive_scan(const Group& group, T value) { return exclusive_scan(group, value, plus<T>()); }

}  // namespace cooperative_groups
