// An LSTM or GRU layer over all time steps as one persistent kernel in clusters, fp32: batch any, hidden ≤ 256, sm_90.
// Each cluster of 8 blocks holds all recurrent weights in its registers (hidden = 256 fills half of them) and serves ROWS of the
// batch, whose rows are independent: no barrier over the grid, no cooperative launch, and any number of clusters is safe.
// After each step the blocks write their part of h into the shared memory of all 8 (distributed shared memory), and one cluster
// barrier follows; h lies there twice, so that a step writes where no one still reads. Works in a CUDA graph's capture.
// All arithmetic is fp32 on CUDA cores: as exact as the reference. Expected, not measured: 1 to 2 µs a step.
// The inputs' part of the gates is one product for all steps before this kernel (a library's, or skeleton pipelined_product):
//   gates [steps][batch][G · hidden] = x · w_ih^T + b_ih, G = 4 (LSTM: i, f, g, o; + b_hh) or 3 (GRU: r, z, n; b_hh comes apart)
// w_hh [G · hidden][hidden], h0 and c0 [batch][hidden], out [steps][batch][hidden], h and c [batch][hidden] as torch has them
// (GRU: c0, c null; LSTM: b_hh null). Layers follow each other in the stream; the reverse direction is a call on reversed steps.
// Larger hidden: a cooperative grid (playbook persistent-kernels), since the weights no longer fit into one cluster.
// Offered from sm_90 for lstm, gru, lstm_cell, gru_cell.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;
constexpr int BLOCKS = 8;                                          // the largest portable cluster
__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
// 16 lanes serve a hidden unit: 4 gates × 4 lanes, each of which has a fourth of a gate's row of weights in registers. Then lane
// `part` of a gate takes row `part` of the batch. A GRU's fourth gate has no weights and carries the inputs' part of n.
template <int HIDDEN, int ROWS, bool GRU>
__global__ void __cluster_dims__(BLOCKS, 1, 1) __launch_bounds__(HIDDEN / BLOCKS * 16, 1)
    recurrent(const float* __restrict__ gates, const float* __restrict__ w, const float* __restrict__ b,
              const float* __restrict__ h0, const float* __restrict__ c0, float* __restrict__ out, float* __restrict__ h_end,
              float* __restrict__ c_end, int steps, int batch, int hidden) {
  constexpr int GATES = GRU ? 3 : 4, UNITS = HIDDEN / BLOCKS;
  __shared__ __align__(16) float h[2][ROWS][HIDDEN];
  cg::cluster_group cluster = cg::this_cluster();
  const int lane = threadIdx.x % 32, part = threadIdx.x % 4, gate = threadIdx.x / 4 % 4;
  const int unit = cluster.block_rank() * UNITS + threadIdx.x / 16, first = blockIdx.x / BLOCKS * ROWS, row = first + part;
  const bool there = unit < hidden, mine = there && part < ROWS && row < batch;            // padded units stay 0
  const size_t at = static_cast<size_t>(row) * hidden + unit;                             // in h0, c0, and in a step of out

  float weight[HIDDEN / 4];                                        // columns 4(part + 4i) to + 3: neighbours read neighbours
#pragma unroll
  for (int i = 0; i < HIDDEN / 4; ++i) {
    const int column = (i / 4 * 4 + part) * 4 + i % 4;
    const bool used = there && gate < GATES && column < hidden;
    weight[i] = used ? w[(static_cast<size_t>(gate) * hidden + unit) * hidden + column] : 0.0f;
  }
  const float bias = GRU && gate == 2 && there ? b[2 * hidden + unit] : 0.0f;              // of n: inside of r · (…)
  const float early = GRU && gate < 2 && there ? b[gate * hidden + unit] : 0.0f;           // of r and z: with the inputs' part
  float state = !mine ? 0.0f : GRU ? h0[at] : c0[at], new_h = mine ? h0[at] : 0.0f;
  for (int i = threadIdx.x; i < ROWS * HIDDEN; i += UNITS * 16) {
    const int r = first + i / HIDDEN, column = i % HIDDEN;
    h[0][i / HIDDEN][column] = r < batch && column < hidden ? h0[static_cast<size_t>(r) * hidden + column] : 0.0f;
  }
  const int from = GRU && gate == 3 ? 2 : gate;                    // which of the inputs' gates a lane reads; a GRU's lane 2 none
  const bool reads = mine && !(GRU && gate == 2);
  const float* input = gates + static_cast<size_t>(row) * GATES * hidden + from * hidden + unit;
  const size_t stride = static_cast<size_t>(batch) * GATES * hidden;
  float next = reads && steps > 0 ? *input : 0.0f;
  cluster.sync();                                                  // all blocks run, and their h is there

  for (int step = 0; step < steps; ++step) {
    const float inputs = next;
    if (reads && step + 1 < steps) next = input[(step + 1) * stride];          // on its way during this step
    float sums[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      float sum[4] = {};                                           // four chains: each waits for its own additions only
#pragma unroll
      for (int i = 0; i < HIDDEN / 16; ++i) {
        const float4 x = *reinterpret_cast<const float4*>(&h[step % 2][r][(i * 4 + part) * 4]);
        sum[0] += weight[i * 4] * x.x, sum[1] += weight[i * 4 + 1] * x.y;
        sum[2] += weight[i * 4 + 2] * x.z, sum[3] += weight[i * 4 + 3] * x.w;
      }
      sums[r] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
      sums[r] += __shfl_xor_sync(~0u, sums[r], 1);
      sums[r] += __shfl_xor_sync(~0u, sums[r], 2);
    }
    float value = 0.0f;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) value = part == r ? sums[r] : value;
    value += bias + early + inputs;
    if (GRU ? gate < 2 : gate != 2) value = sigmoid(value);
    else if (!GRU) value = tanhf(value);
    float g[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) g[i] = __shfl_sync(~0u, value, lane / 16 * 16 + i * 4 + part);
    if constexpr (GRU) {
      const float candidate = tanhf(g[3] + g[0] * g[2]);
      state = new_h = (1.0f - g[1]) * candidate + g[1] * state;
    } else {
      state = g[1] * state + g[0] * g[2];
      new_h = g[3] * tanhf(state);
    }
    if (mine && gate == 0) out[step * static_cast<size_t>(batch) * hidden + at] = new_h;
    if (part < ROWS && step + 1 < steps)                           // each gate's lane serves two of the 8 blocks
      for (int rank = gate; rank < BLOCKS; rank += 4)
        *cluster.map_shared_rank(&h[(step + 1) % 2][part][unit], rank) = mine ? new_h : 0.0f;
    cluster.sync();                                                // also behind the last step: no block ends while others write
  }
  if (mine && gate == 0) {
    h_end[at] = new_h;
    if (!GRU) c_end[at] = state;
  }
}
template <int HIDDEN, bool GRU>
void launch(int rows, cudaStream_t stream, const float* gates, const float* w, const float* b, const float* h0, const float* c0,
            float* out, float* h, float* c, int steps, int batch, int hidden) {
  const auto kernel = rows == 1 ? recurrent<HIDDEN, 1, GRU> : rows == 2 ? recurrent<HIDDEN, 2, GRU> : recurrent<HIDDEN, 4, GRU>;
  const int clusters = (batch + rows - 1) / rows;
  kernel<<<clusters * BLOCKS, HIDDEN / BLOCKS * 16, 0, stream>>>(gates, w, b, h0, c0, out, h, c, steps, batch, hidden);
}
extern "C" int run(const float* gates, const float* w_hh, const float* b_hh, const float* h0, const float* c0, float* out,
                   float* h, float* c, int steps, int batch, int hidden, int gru, cudaStream_t stream) {
  if (hidden < 1 || hidden > 256 || batch < 1 || steps < 1) return cudaErrorInvalidValue;
  const int rows = batch <= 16 ? 1 : batch <= 32 ? 2 : 4;          // about 16 clusters of 8 blocks run at once on 132 SMs
  const auto chosen = hidden <= 128 ? (gru ? launch<128, true> : launch<128, false>)
                                    : (gru ? launch<256, true> : launch<256, false>);
  chosen(rows, stream, gates, w_hh, b_hh, h0, c0, out, h, c, steps, batch, hidden);
  return cudaGetLastError();
}
