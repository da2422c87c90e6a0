// Atomics (old and new value of a word nobody else touches, and sums under contention) and loads and stores with a cache hint.
#include "cases.cuh"

// The returned old value and the word afterwards are two cases.
#define ATOMIC(NAME, TYPE, CALL)                                                     \
  BODY_CASE(NAME##_old, TYPE, TYPE, exact(), __shared__ TYPE words[64];              \
            TYPE* p = &words[threadIdx.x]; *p = x; return CALL;)                     \
  BODY_CASE(NAME##_new, TYPE, TYPE, exact(), __shared__ TYPE words[64];              \
            TYPE* p = &words[threadIdx.x]; *p = x; (void)CALL; return *p;)

ATOMIC(atomicAdd_int, int, atomicAdd(p, y))
ATOMIC(atomicAdd_unsigned, unsigned, atomicAdd(p, y))
ATOMIC(atomicAdd_ull, Word, atomicAdd(p, y))
ATOMIC(atomicAdd_float, float, atomicAdd(p, y))
ATOMIC(atomicAdd_double, double, atomicAdd(p, y))
ATOMIC(atomicAdd_half, __half, atomicAdd(p, y))
ATOMIC(atomicAdd_half2, __half2, atomicAdd(p, y))
ATOMIC(atomicAdd_bfloat16, __nv_bfloat16, atomicAdd(p, y))
ATOMIC(atomicAdd_bfloat162, __nv_bfloat162, atomicAdd(p, y))
ATOMIC(atomicAdd_block, int, atomicAdd_block(p, y))
ATOMIC(atomicAdd_system, float, atomicAdd_system(p, y))
ATOMIC(atomicSub_int, int, atomicSub(p, y))
ATOMIC(atomicSub_unsigned, unsigned, atomicSub(p, y))
ATOMIC(atomicExch_int, int, atomicExch(p, y))
ATOMIC(atomicExch_float, float, atomicExch(p, y))
ATOMIC(atomicExch_ull, Word, atomicExch(p, y))
ATOMIC(atomicMin_int, int, atomicMin(p, y))
ATOMIC(atomicMin_unsigned, unsigned, atomicMin(p, y))
ATOMIC(atomicMin_ll, long long, atomicMin(p, y))
ATOMIC(atomicMax_int, int, atomicMax(p, y))
ATOMIC(atomicMax_unsigned, unsigned, atomicMax(p, y))
ATOMIC(atomicMax_ull, Word, atomicMax(p, y))
ATOMIC(atomicInc, unsigned, atomicInc(p, y))
ATOMIC(atomicDec, unsigned, atomicDec(p, y))
ATOMIC(atomicAnd_int, int, atomicAnd(p, y))
ATOMIC(atomicOr_unsigned, unsigned, atomicOr(p, y))
ATOMIC(atomicXor_ull, Word, atomicXor(p, y))
ATOMIC(atomicCAS_int, int, atomicCAS(p, k % 2 ? x : y, z))
ATOMIC(atomicCAS_unsigned, unsigned, atomicCAS(p, k % 2 ? x : y, z))
ATOMIC(atomicCAS_ull, Word, atomicCAS(p, k % 2 ? x : y, z))

THREAD_CASE(contended_add, int, exact(), __shared__ int sum; if (thread == 0) sum = 3; __syncthreads();
            atomicAdd(&sum, thread); __syncthreads(); return sum;)
THREAD_CASE(contended_float, float, exact(), __shared__ float sum; if (thread == 0) sum = 0.0f; __syncthreads();
            atomicAdd(&sum, x); __syncthreads(); return sum;)
THREAD_CASE(contended_max, int, exact(), __shared__ int top; if (thread == 0) top = -5; __syncthreads();
            atomicMax(&top, (thread * 29) % 61); __syncthreads(); return top;)
THREAD_CASE(contended_inc, unsigned, exact(), __shared__ unsigned count; if (thread == 0) count = 0; __syncthreads();
            atomicInc(&count, 9); __syncthreads(); return count;)
THREAD_CASE(contended_cas, unsigned, exact(), __shared__ unsigned bits; if (thread == 0) bits = 0; __syncthreads();
            unsigned seen = bits; unsigned assumed;
            do { assumed = seen; seen = atomicCAS(&bits, assumed, assumed + thread); } while (assumed != seen);
            __syncthreads(); return bits;)

#define LOAD(NAME, TYPE) THREAD_CASE(NAME##_##TYPE, TYPE, exact(), \
            static __device__ TYPE source[64]; source[thread] = TYPE(x); __syncthreads(); return NAME(&source[thread]);)
LOAD(__ldca, float)
LOAD(__ldcg, float)
LOAD(__ldcs, float)
LOAD(__ldcv, float)
LOAD(__ldcg, int)
LOAD(__ldcs, double)
LOAD(__ldcg, __half)

__device__ const float kReadOnly[64] = {1.5f, 2.5f, -3.0f, 4.25f};
__device__ const float4 kReadOnly4[16] = {{1.0f, 2.0f, 3.0f, 4.0f}, {5.0f, 6.0f, 7.0f, 8.0f}};
__constant__ int kConstant[4] = {11, 22, 33, 44};
THREAD_CASE(ldg_float, float, exact(), return __ldg(&kReadOnly[thread]);)
THREAD_CASE(ldg_float4, float, exact(), const float4 v = __ldg(&kReadOnly4[thread % 16]); return v.x + 2.0f * v.y + 3.0f * v.z + v.w;)
THREAD_CASE(ldlu_float, float, exact(), return __ldlu(&kReadOnly[thread]);)
THREAD_CASE(constant_int, int, exact(), return kConstant[thread % 4];)

#define STORE(NAME, TYPE) THREAD_CASE(NAME##_##TYPE, TYPE, exact(), static __device__ TYPE target[64]; \
            NAME(&target[thread], TYPE(x)); __syncthreads(); return target[63 - thread];)
STORE(__stwb, float)
STORE(__stcg, float)
STORE(__stcs, float)
STORE(__stwt, float)
STORE(__stcs, int)
STORE(__stcg, __nv_bfloat16)

EXPORT_CASES
