// Warp and block collectives and cooperative groups, by two warps of one block.
#include "cases.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

#define ALL 0xffffffffu

THREAD_CASE(shfl, float, exact(), return __shfl_sync(ALL, x, 5);)
THREAD_CASE(shfl_own_source, float, exact(), return __shfl_sync(ALL, x, lane * 7 + 3);)
THREAD_CASE(shfl_width_8, float, exact(), return __shfl_sync(ALL, x, 3, 8);)
THREAD_CASE(shfl_source_past_width, float, exact(), return __shfl_sync(ALL, x, 13, 4);)
THREAD_CASE(shfl_negative_source, float, exact(), return __shfl_sync(ALL, x, -3, 16);)
THREAD_CASE(shfl_up, float, exact(), return __shfl_up_sync(ALL, x, 3);)
THREAD_CASE(shfl_up_width_16, float, exact(), return __shfl_up_sync(ALL, x, 5, 16);)
THREAD_CASE(shfl_up_far, float, exact(), return __shfl_up_sync(ALL, x, 40);)
THREAD_CASE(shfl_down, float, exact(), return __shfl_down_sync(ALL, x, 3);)
THREAD_CASE(shfl_down_width_8, float, exact(), return __shfl_down_sync(ALL, x, 5, 8);)
THREAD_CASE(shfl_down_far, float, exact(), return __shfl_down_sync(ALL, x, 33);)
THREAD_CASE(shfl_xor, float, exact(), return __shfl_xor_sync(ALL, x, 21);)
THREAD_CASE(shfl_xor_width_4, float, exact(), return __shfl_xor_sync(ALL, x, 6, 4);)
THREAD_CASE(shfl_xor_width_16_over, float, exact(), return __shfl_xor_sync(ALL, x, 16, 16);)
THREAD_CASE(shfl_int, int, exact(), return __shfl_sync(ALL, thread * 3, 31 - lane);)
THREAD_CASE(shfl_unsigned, unsigned, exact(), return __shfl_down_sync(ALL, (unsigned)thread * 3u, 1);)
THREAD_CASE(shfl_long, long long, exact(), return __shfl_up_sync(ALL, thread * 0x100000001ll, 1);)
THREAD_CASE(shfl_double, double, exact(), return __shfl_xor_sync(ALL, thread * 0.1, 1);)
THREAD_CASE(shfl_half, __half, exact(), return __shfl_xor_sync(ALL, __float2half(x), 2);)
THREAD_CASE(shfl_half2, __half2, exact(), return __shfl_down_sync(ALL, __floats2half2_rn(x, -x), 2);)
THREAD_CASE(shfl_bfloat16, __nv_bfloat16, exact(), return __shfl_sync(ALL, __float2bfloat16(x), 9);)
THREAD_CASE(shfl_bfloat162, __nv_bfloat162, exact(), return __shfl_up_sync(ALL, __floats2bfloat162_rn(x, -x), 4);)
THREAD_CASE(shfl_partial_mask, float, exact(), if (lane >= 12) return x;
            const float next = __shfl_down_sync(0xfffu, x, 1);
            return lane < 11 ? next : 0.0f;)  // lane 11 has read a lane outside the mask, which is undefined
THREAD_CASE(shfl_two_halves, float, exact(),
            const unsigned mask = lane < 16 ? 0xffffu : 0xffff0000u; return __shfl_xor_sync(mask, x, 8);)
THREAD_CASE(butterfly_sum, float, exact(), float sum = x;
            for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(ALL, sum, step); return sum;)
THREAD_CASE(shfl_inside_loop_of_some, int, exact(), int value = thread;
            if (lane % 2) for (int i = 0; i < 3; i++) value += __shfl_xor_sync(0xaaaaaaaau, value, 2); return value;)

THREAD_CASE(ballot, unsigned, exact(), return __ballot_sync(ALL, x > 0.0f);)
THREAD_CASE(ballot_partial, unsigned, exact(), if (lane >= 8) return __ballot_sync(0xffffff00u, lane % 3); return 0u;)
THREAD_CASE(any, int, exact(), return __any_sync(ALL, thread == 40) != 0;)
THREAD_CASE(all, int, exact(), return __all_sync(ALL, thread < 32) != 0;)
THREAD_CASE(all_partial, int, exact(), if (lane < 4) return __all_sync(0xfu, lane < 4) != 0; return 7;)
THREAD_CASE(match_any, unsigned, exact(), return __match_any_sync(ALL, lane % 5);)
THREAD_CASE(match_any_long, unsigned, exact(), return __match_any_sync(ALL, (long long)(lane / 7) << 40);)
THREAD_CASE(match_any_float, unsigned, exact(), return __match_any_sync(ALL, lane % 2 ? 1.0f : -1.0f);)
THREAD_CASE(match_all_equal, unsigned, exact(), int same; const unsigned m = __match_all_sync(ALL, thread / 32, &same);
            return m ^ (unsigned)(same != 0);)
THREAD_CASE(match_all_different, unsigned, exact(), int same; const unsigned m = __match_all_sync(ALL, lane, &same);
            return m + 2u * (unsigned)(same != 0);)
THREAD_CASE(reduce_add, int, exact(), return __reduce_add_sync(ALL, thread - 20);)
THREAD_CASE(reduce_add_unsigned, unsigned, exact(), return __reduce_add_sync(ALL, 0x10000001u * (unsigned)thread);)
THREAD_CASE(reduce_min, int, exact(), return __reduce_min_sync(ALL, 5 - thread);)
THREAD_CASE(reduce_max, int, exact(), return __reduce_max_sync(ALL, (thread * 13) % 29 - 9);)
THREAD_CASE(reduce_max_unsigned, unsigned, exact(), return __reduce_max_sync(ALL, (unsigned)(3 - thread));)
THREAD_CASE(reduce_and, unsigned, exact(), return __reduce_and_sync(ALL, 0xf0u | (unsigned)thread);)
THREAD_CASE(reduce_or, unsigned, exact(), return __reduce_or_sync(ALL, 1u << (lane / 2));)
THREAD_CASE(reduce_xor, unsigned, exact(), return __reduce_xor_sync(ALL, 3u << lane);)
THREAD_CASE(reduce_partial, int, exact(), if (lane < 10) return __reduce_add_sync(0x3ffu, lane); return -1;)
THREAD_CASE(activemask, unsigned, exact(), return __activemask();)
THREAD_CASE(syncwarp, int, exact(), __shared__ int slots[64]; slots[thread] = thread * thread; __syncwarp();
            return slots[thread ^ 1];)
THREAD_CASE(lane_mask_of_thread, unsigned, exact(), return threadIdx.x / warpSize;)

THREAD_CASE(syncthreads, int, exact(), __shared__ int slots[64]; slots[thread] = thread * 5; __syncthreads();
            return slots[63 - thread];)
THREAD_CASE(syncthreads_or, int, exact(), return __syncthreads_or(thread == 63) != 0;)
THREAD_CASE(syncthreads_and, int, exact(), return __syncthreads_and(thread < 63) != 0;)
THREAD_CASE(syncthreads_count, int, exact(), return __syncthreads_count(thread % 3 == 0);)

THREAD_CASE(block_rank, unsigned, exact(), cg::thread_block block = cg::this_thread_block(); block.sync();
            return block.thread_rank() + 1000 * block.size();)
THREAD_CASE(tile_32_sum, float, exact(), auto tile = cg::tiled_partition<32>(cg::this_thread_block());
            return cg::reduce(tile, x, cg::plus<float>());)
THREAD_CASE(tile_8_max, int, exact(), auto tile = cg::tiled_partition<8>(cg::this_thread_block());
            return cg::reduce(tile, (thread * 11) % 23, cg::greater<int>());)
THREAD_CASE(tile_4_min, int, exact(), auto tile = cg::tiled_partition<4>(cg::this_thread_block());
            return cg::reduce(tile, (thread * 11) % 23, cg::less<int>());)
THREAD_CASE(tile_16_shfl, float, exact(), auto tile = cg::tiled_partition<16>(cg::this_thread_block());
            return tile.shfl(x, 3) + tile.shfl_down(x, 2) * 8.0f + tile.shfl_up(x, 1) * 64.0f + tile.shfl_xor(x, 4) * 512.0f;)
THREAD_CASE(tile_8_ballot, unsigned, exact(), auto tile = cg::tiled_partition<8>(cg::this_thread_block());
            return tile.ballot(lane % 3 == 0) | tile.any(thread == 9) << 8 | (tile.all(thread < 16) != 0) << 9;)
THREAD_CASE(tile_ranks, unsigned, exact(), auto tile = cg::tiled_partition<4>(cg::this_thread_block());
            return tile.thread_rank() | tile.size() << 8 | tile.meta_group_rank() << 16 | tile.meta_group_size() << 24;)
THREAD_CASE(coalesced_even, unsigned, exact(), unsigned seen = 0; if (lane % 2 == 0) {
              cg::coalesced_group active = cg::coalesced_threads(); seen = active.size() << 8 | active.thread_rank(); } return seen;)
THREAD_CASE(tile_inclusive_scan, int, exact(), auto tile = cg::tiled_partition<32>(cg::this_thread_block());
            return cg::inclusive_scan(tile, thread + 1);)
THREAD_CASE(tile_exclusive_scan, int, exact(), auto tile = cg::tiled_partition<16>(cg::this_thread_block());
            return cg::exclusive_scan(tile, thread + 1, cg::plus<int>());)

EXPORT_CASES
