// Cooperative groups over the simulator's barriers and warp operations, in place of NVIDIA's header: thread blocks, tiles of at
// most a warp, coalesced groups and the grid's identity. Grid-wide and cluster-wide synchronisation cannot run here.
#pragma once
#include "stitchsim/prelude.h"

namespace cooperative_groups {

class thread_block {
 public:
  void sync() const { __syncthreads(); }
  unsigned thread_rank() const { return (unsigned)stitchsim::here.thread; }
  unsigned size() const { return blockDim.x * blockDim.y * blockDim.z; }
  unsigned num_threads() const { return size(); }
  dim3 group_index() const { return dim3(blockIdx.x, blockIdx.y, blockIdx.z); }
  dim3 thread_index() const { return dim3(threadIdx.x, threadIdx.y, threadIdx.z); }
  dim3 dim_threads() const { return blockDim; }
  dim3 group_dim() const { return blockDim; }
};
inline thread_block this_thread_block() { return {}; }

class grid_group {
 public:
  bool is_valid() const { return false; }  // no cooperative launch
  void sync() const { stitchsim::fail("a grid-wide barrier cannot run on the simulator"); }
  unsigned long long block_rank() const { return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z); }
  unsigned long long num_blocks() const { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  unsigned long long thread_rank() const { return block_rank() * this_thread_block().size() + this_thread_block().thread_rank(); }
  unsigned long long size() const { return num_blocks() * this_thread_block().size(); }
  unsigned long long num_threads() const { return size(); }
  dim3 group_dim() const { return gridDim; }
};
inline grid_group this_grid() { return {}; }

// Lanes of one warp, given by a mask; ranks count the lanes below one's own.
class warp_group {
 public:
  warp_group(unsigned mask, unsigned meta_rank, unsigned meta_size) : mask_(mask), meta_rank_(meta_rank), meta_size_(meta_size) {}

  void sync() const { __syncwarp(mask_); }
  unsigned thread_rank() const { return __builtin_popcount(mask_ & ((1u << stitchsim::here.lane) - 1u)); }
  unsigned size() const { return __builtin_popcount(mask_); }
  unsigned num_threads() const { return size(); }
  unsigned meta_group_rank() const { return meta_rank_; }
  unsigned meta_group_size() const { return meta_size_; }

  int any(int predicate) const { return __any_sync(mask_, predicate); }
  int all(int predicate) const { return __all_sync(mask_, predicate); }
  unsigned ballot(int predicate) const { return by_rank(__ballot_sync(mask_, predicate)); }
  template <class T> unsigned match_any(T value) const { return by_rank(__match_any_sync(mask_, value)); }
  template <class T> T shfl(T value, int rank) const { return from_rank(value, rank, rank % (int)size()); }
  template <class T> T shfl_up(T value, unsigned delta) const { return from_rank(value, (int)thread_rank() - (int)delta, -1); }
  template <class T> T shfl_down(T value, unsigned delta) const { return from_rank(value, (int)thread_rank() + (int)delta, -1); }
  template <class T> T shfl_xor(T value, unsigned bits) const { return from_rank(value, (int)(thread_rank() ^ bits), -1); }

 private:
  // The value of the lane with that rank; a rank outside of the group means `otherwise`, or the caller's own value for -1.
  template <class T> T from_rank(T value, int rank, int otherwise) const {
    if (rank < 0 || rank >= (int)size()) rank = otherwise < 0 ? (int)thread_rank() : otherwise;
    unsigned left = mask_;
    for (; rank > 0; rank--) left &= left - 1;
    return __shfl_sync(mask_, value, __builtin_ctz(left));
  }
  unsigned by_rank(unsigned lanes) const {
    unsigned result = 0, rank = 0;
    for (unsigned left = mask_; left != 0; left &= left - 1, rank++) result |= (lanes >> __builtin_ctz(left) & 1u) << rank;
    return result;
  }

  unsigned mask_, meta_rank_, meta_size_;
};

using coalesced_group = warp_group;
inline coalesced_group coalesced_threads(int line = __builtin_LINE()) { return {stitchsim::converged_lanes(line), 0, 1}; }

namespace detail {
inline warp_group tile(unsigned size) {
  const unsigned first = (unsigned)stitchsim::here.lane / size * size;
  const unsigned mask = size == 32 ? 0xffffffffu : ((1u << size) - 1u) << first;
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  const unsigned rest = threads - (unsigned)stitchsim::here.warp * 32;
  return {rest >= 32 ? mask : mask & ((1u << rest) - 1u), (unsigned)stitchsim::here.thread / size, (threads + size - 1) / size};
}
}  // namespace detail

template <unsigned Size, class Parent = void> class thread_block_tile : public warp_group {
 public:
  static_assert(Size <= 32 && (Size & (Size - 1)) == 0, "the simulator's tiles have at most 32 threads, a power of two");
  thread_block_tile() : warp_group(detail::tile(Size)) {}
  // A tile of a known parent is one of an unknown one, as in `thread_block_tile<32> warp = tiled_partition<32>(block)`.
  template <class Other> thread_block_tile(const thread_block_tile<Size, Other>& other) : warp_group(other) {}
  static constexpr unsigned size() { return Size; }
  static constexpr unsigned num_threads() { return Size; }
};
template <unsigned Size, class Parent> thread_block_tile<Size, Parent> tiled_partition(const Parent&) { return {}; }
template <class Parent> warp_group tiled_partition(const Parent&, unsigned size) { return detail::tile(size); }

template <class Group> void sync(const Group& group) { group.sync(); }
template <class Group> unsigned thread_rank(const Group& group) { return group.thread_rank(); }

}  // namespace cooperative_groups
