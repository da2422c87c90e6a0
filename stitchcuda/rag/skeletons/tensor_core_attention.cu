// Attention on tensor cores in one kernel: out [heads][queries][head] = softmax(q · k^T / √head) · v, causal or not, sm_80.
// `heads` is batch · heads ≤ 65535; queries and keys have any length, a head any size ≤ 128. Nothing of size queries × keys is
// stored: maximum and sum are kept online. A warp serves 16 queries, a block 64; KEYS keys at a time lie in shared memory.
// fp32 in and out keeps fp32's precision: operands are scaled by powers of two (each query, each key, KEYS values together) and
// split into high and low fp16 parts, PARTS = 2: three products for one, small ones first. Where the reference has 11 bits,
// PARTS = 1 is as exact as it and quicker. fp16 and bf16 in and out: PARTS = 1, no scale. Sums and softmax are fp32 throughout.
// Expected, not measured: 2 times torch's fp32 attention and more. In half precision torch's flash attention is quicker: use
// this where something is fused (a bias, a mask, a ReLU for softmax: at `score`). A mask has to leave each row a key in its
// first KEYS keys, else −inf − −inf is NaN. Infinities in q, k or v may give NaN.
// Offered from sm_80 for scaled_dot_product_attention, softmax, _softmax, matmul, bmm, baddbmm, einsum.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <math_constants.h>
#include <type_traits>
constexpr int WARPS = 4, QUERIES = 16 * WARPS, THREADS = 32 * WARPS;
template <class T> struct alignas(4 * sizeof(T)) Four { T v[4]; };
// Two numbers as a pair, x in its low half; `rest` is what rounding dropped.
__device__ unsigned pack(__half, float x, float y, float2& rest) {
  const __half2 pair = __floats2half2_rn(x, y);
  const float2 back = __half22float2(pair);
  rest = {x - back.x, y - back.y};
  return reinterpret_cast<const unsigned&>(pair);
}
__device__ unsigned pack(__nv_bfloat16, float x, float y, float2& rest) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
  const float2 back = __bfloat1622float2(pair);
  rest = {x - back.x, y - back.y};
  return reinterpret_cast<const unsigned&>(pair);
}
// Four 8 × 8 matrices: lane l gives the address of row l % 8 of matrix l / 8, and gets of each elements 2(l % 4), + 1 of row
// l / 4; transposed: of column l / 4.
__device__ void load4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))) : "memory");
}
__device__ void load4_transposed(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row))) : "memory");
}
// With g = lane / 4, t = lane % 4: a: rows g, g + 8, g, g + 8 at k = 2t, 2t, 2t + 8, 2t + 8 and the next; b: column g at k = 2t
// and 2t + 8 and the next; c: row g at columns 2t, 2t + 1, then row g + 8. So two c's side by side are an a of the next product.
__device__ void mma(__half, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ void mma(__nv_bfloat16, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// c += a · b with the parts of both, the small products first.
template <class Operand, int PARTS>
__device__ void multiply(float (&c)[4], const unsigned (&a)[PARTS][4], const unsigned (&b)[PARTS][4], int half) {
  if constexpr (PARTS == 2) {
    mma(Operand(), c, a[0], b[1][half * 2], b[1][half * 2 + 1]);
    mma(Operand(), c, a[1], b[0][half * 2], b[0][half * 2 + 1]);
  }
  mma(Operand(), c, a[0], b[0][half * 2], b[0][half * 2 + 1]);
}
__device__ int exponent_of(float largest) { return largest > 0.0f ? min(max(ilogbf(largest), -100), 127) : 0; }
template <class T> __device__ void read4(float (&to)[4], const T* row, int column, int head, bool there) {
  if (head % 4 == 0) {                                             // 4 elements at once: head and column are multiples of 4
    Four<T> found = {};
    if (there && column < head) found = *reinterpret_cast<const Four<T>*>(row + column);
    for (int i = 0; i < 4; ++i) to[i] = static_cast<float>(found.v[i]);
  } else {
    for (int i = 0; i < 4; ++i) to[i] = there && column + i < head ? static_cast<float>(row[column + i]) : 0.0f;
  }
}
// Writes four numbers, scaled, to row `line` of each part of a tile.
template <class Operand, int PARTS, int ROWS, int WIDTH>
__device__ void write4(Operand (&tile)[PARTS][ROWS][WIDTH], int line, int column, const float (&from)[4], float scale) {
  float2 x = {from[0] * scale, from[1] * scale}, y = {from[2] * scale, from[3] * scale};
#pragma unroll
  for (int part = 0; part < PARTS; ++part)
    *reinterpret_cast<uint2*>(&tile[part][line][column]) = {pack(Operand(), x.x, x.y, x), pack(Operand(), y.x, y.y, y)};
}
template <class T, int HEAD, int KEYS, int PARTS>                  // HEAD: a multiple of 16, head padded with zeros
__global__ void __launch_bounds__(THREADS) attention(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                                                     T* __restrict__ out, int queries, int keys, int head, bool causal) {
  using Operand = std::conditional_t<std::is_same_v<T, __nv_bfloat16>, __nv_bfloat16, __half>;
  constexpr bool SCALED = std::is_same_v<T, float>;
  constexpr int PER_ROW = HEAD / 4, EACH = KEYS * PER_ROW / THREADS;          // a thread loads EACH times four elements
  constexpr float LOG2_E = 1.4426950408889634f, LARGEST = 16384.0f;           // probabilities are scaled to 2^14, too
  __shared__ __align__(16) Operand ks[PARTS][KEYS][HEAD + 8], vs[PARTS][KEYS][HEAD + 8];   // padded: no bank conflicts
  __shared__ float undo[KEYS], largest[WARPS];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  const int block = gridDim.x - 1 - blockIdx.x, row = block * QUERIES + warp * 16 + g;     // the longest causal ones first
  q += static_cast<size_t>(blockIdx.y) * queries * head, out += static_cast<size_t>(blockIdx.y) * queries * head;
  k += static_cast<size_t>(blockIdx.y) * keys * head, v += static_cast<size_t>(blockIdx.y) * keys * head;

  unsigned query[HEAD / 16][PARTS][4];                             // this warp's 16 queries, for good
  float factor[2];                                                 // rows g and g + 8: undoes their scale; 1/√head, log2(e)
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int at = row + half * 8;
    float x[HEAD / 16][4], most = 0.0f;
#pragma unroll
    for (int i = 0; i < HEAD / 16; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = i * 16 + e / 2 * 8 + t * 2 + e % 2;
        x[i][e] = at < queries && column < head ? static_cast<float>(q[static_cast<size_t>(at) * head + column]) : 0.0f;
        most = fmaxf(most, fabsf(x[i][e]));
      }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1)), most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const int shift = SCALED ? 14 - exponent_of(most) : 0;
    factor[half] = ldexpf(rsqrtf(head) * LOG2_E, -shift);
    const float scale = ldexpf(1.0f, shift);
#pragma unroll
    for (int i = 0; i < HEAD / 16; ++i) {
      float2 a = {x[i][0] * scale, x[i][1] * scale}, b = {x[i][2] * scale, x[i][3] * scale};
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        query[i][part][half] = pack(Operand(), a.x, a.y, a);
        query[i][part][half + 2] = pack(Operand(), b.x, b.y, b);
      }
    }
  }

  float result[HEAD / 8][4] = {}, top[2] = {-CUDART_INF_F, -CUDART_INF_F}, sum[2] = {};
  const int end = causal ? min(keys, (block + 1) * QUERIES) : keys;
  for (int from = 0; from < end; from += KEYS) {
    float key[EACH][4], value[EACH][4], most = 0.0f;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int line = (threadIdx.x + i * THREADS) / PER_ROW, column = threadIdx.x % PER_ROW * 4;
      const size_t at = static_cast<size_t>(min(from + line, keys - 1)) * head;
      read4(key[i], k + at, column, head, from + line < keys);
      read4(value[i], v + at, column, head, from + line < keys);
      for (int e = 0; e < 4; ++e) most = fmaxf(most, fabsf(value[i][e]));
    }
    if constexpr (SCALED) {
      for (int offset = 16; offset; offset /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, offset));
      if (lane == 0) largest[warp] = most;
    }
    __syncthreads();                                               // all are done with the last tile; `largest` is there
    int exponent = 14;                                             // of the values of this tile
    if constexpr (SCALED) {
      for (int i = 0; i < WARPS; ++i) most = fmaxf(most, largest[i]);
      exponent = exponent_of(most);
    }
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int line = (threadIdx.x + i * THREADS) / PER_ROW, column = threadIdx.x % PER_ROW * 4;
      int shift = 0;
      if constexpr (SCALED) {
        float high = fmaxf(fmaxf(fabsf(key[i][0]), fabsf(key[i][1])), fmaxf(fabsf(key[i][2]), fabsf(key[i][3])));
        for (int offset = PER_ROW / 2; offset; offset /= 2) high = fmaxf(high, __shfl_xor_sync(~0u, high, offset));
        shift = 14 - exponent_of(high);
      }
      if (column == 0) undo[line] = ldexpf(1.0f, -shift);
      write4(ks, line, column, key[i], ldexpf(1.0f, shift));
      write4(vs, line, column, value[i], ldexpf(1.0f, 14 - exponent));
    }
    __syncthreads();

    float score[KEYS / 8][4] = {}, higher[2] = {top[0], top[1]};
#pragma unroll
    for (int i = 0; i < HEAD / 16; ++i)
#pragma unroll
      for (int j = 0; j < KEYS / 16; ++j) {
        unsigned b[PARTS][4];
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
          load4(b[part], &ks[part][j * 16 + lane / 16 * 8 + lane % 8][i * 16 + lane / 8 % 2 * 8]);
        for (int half = 0; half < 2; ++half) multiply<Operand, PARTS>(score[j * 2 + half], query[i], b, half);
      }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int line = j * 8 + t * 2 + e % 2, at = from + line;
        score[j][e] *= factor[e / 2] * undo[line];                 // in units of log 2; a bias · log2(e) would be added here
        if (at >= keys || (causal && at > row + e / 2 * 8)) score[j][e] = -CUDART_INF_F;
        higher[e / 2] = fmaxf(higher[e / 2], score[j][e]);
      }
    float keep[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      higher[half] = fmaxf(higher[half], __shfl_xor_sync(~0u, higher[half], 1));
      higher[half] = fmaxf(higher[half], __shfl_xor_sync(~0u, higher[half], 2));
      keep[half] = exp2f(top[half] - higher[half]);                // 0 in the first tile, where `higher` is finite
      top[half] = higher[half], sum[half] *= keep[half];
    }
#pragma unroll
    for (int j = 0; j < KEYS / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sum[e / 2] += score[j][e] = exp2f(score[j][e] - top[e / 2]);

    float piece[HEAD / 8][4] = {};
#pragma unroll
    for (int i = 0; i < KEYS / 16; ++i) {
      unsigned a[PARTS][4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {                                // a's e-th pair: rows g + 8(e % 2), keys 2t + 8(e / 2)
        const float(&from_score)[4] = score[i * 2 + e / 2];
        float2 pair = {from_score[e % 2 * 2] * LARGEST, from_score[e % 2 * 2 + 1] * LARGEST};
#pragma unroll
        for (int part = 0; part < PARTS; ++part) a[part][e] = pack(Operand(), pair.x, pair.y, pair);
      }
#pragma unroll
      for (int j = 0; j < HEAD / 16; ++j) {
        unsigned b[PARTS][4];
#pragma unroll
        for (int part = 0; part < PARTS; ++part)
          load4_transposed(b[part], &vs[part][i * 16 + lane % 16][j * 16 + lane / 16 * 8]);
        for (int half = 0; half < 2; ++half) multiply<Operand, PARTS>(piece[j * 2 + half], a, b, half);
      }
    }
    const float back = ldexpf(1.0f / LARGEST, exponent - 14);
#pragma unroll
    for (int j = 0; j < HEAD / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) result[j][e] = result[j][e] * keep[e / 2] + piece[j][e] * back;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] += __shfl_xor_sync(~0u, sum[half], 1), sum[half] += __shfl_xor_sync(~0u, sum[half], 2);
    const int at = row + half * 8;
#pragma unroll
    for (int j = 0; j < HEAD / 8; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (const int column = j * 8 + t * 2 + e; at < queries && column < head)
          out[static_cast<size_t>(at) * head + column] = static_cast<T>(result[j][half * 2 + e] / sum[half]);
  }
}
template <class T, int PARTS>
int launch(const void* q, const void* k, const void* v, void* out, int heads, int queries, int keys, int head, int causal,
           cudaStream_t stream) {
  if (head < 1 || head > 128 || queries < 1 || keys < 1) return cudaErrorInvalidValue;
  const auto kernel = head <= 32   ? attention<T, 32, 64, PARTS>
                      : head <= 64 ? attention<T, 64, 64, PARTS>
                                   : attention<T, 128, 32, PARTS>;
  kernel<<<dim3((queries + QUERIES - 1) / QUERIES, heads), THREADS, 0, stream>>>(
      static_cast<const T*>(q), static_cast<const T*>(k), static_cast<const T*>(v), static_cast<T*>(out), queries, keys, head,
      causal != 0);
  return cudaGetLastError();
}
extern "C" int run(const float* q, const float* k, const float* v, float* out, int heads, int queries, int keys, int head,
                   int causal, cudaStream_t stream) {
  return launch<float, 2>(q, k, v, out, heads, queries, keys, head, causal, stream);
}
extern "C" int run_half(const void* q, const void* k, const void* v, void* out, int heads, int queries, int keys, int head,
                        int causal, int bfloat16, cudaStream_t stream) {
  return (bfloat16 ? launch<__nv_bfloat16, 1> : launch<__half, 1>)(q, k, v, out, heads, queries, keys, head, causal, stream);
}
