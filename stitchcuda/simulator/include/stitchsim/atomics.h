// Atomic functions, for the types CUDA has them for. Blocks run on several operating system threads, so they are real atomics.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "exchange.h"
#include "math.h"

namespace stitchsim {

template <std::size_t Bytes> struct Raw;
template <> struct Raw<2> { using Type = std::uint16_t; };
template <> struct Raw<4> { using Type = std::uint32_t; };
template <> struct Raw<8> { using Type = std::uint64_t; };

// *address = change(*address), in one step; returns what was there.
template <class T, class Change> inline T update(T* address, Change change) {
  using Bits = typename Raw<sizeof(T)>::Type;
  auto* bits = reinterpret_cast<Bits*>(address);
  Bits before = __atomic_load_n(bits, __ATOMIC_RELAXED);
  for (;;) {
    const T old = bits_as<T>(before);
    if (__atomic_compare_exchange_n(bits, &before, bits_as<Bits>(change(old)), false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return old;
  }
}

// A lock that spins on an atomic never gets it while its owner cannot run: after a while in vain the thread gives way.
inline void spun() {
  static thread_local unsigned times = 0;
  if (++times % 64 == 0 && inside_kernel()) give_way();
}

template <class T> inline T exchange_if(T* address, T expected, T wanted) {
  using Bits = typename Raw<sizeof(T)>::Type;
  Bits seen = bits_as<Bits>(expected);
  const bool swapped = __atomic_compare_exchange_n(reinterpret_cast<Bits*>(address), &seen, bits_as<Bits>(wanted), false,
                                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  if (!swapped) spun();
  return bits_as<T>(seen);
}

template <class V> inline V add_parts(V* address, V value) {  // each half is atomic on its own, as documented
  V old;
  old.x = update(&address->x, [&](auto x) { return __hadd(x, value.x); });
  old.y = update(&address->y, [&](auto y) { return __hadd(y, value.y); });
  return old;
}

}  // namespace stitchsim

#define STITCHSIM_ATOMIC(NAME, T, EXPRESSION)                                                                             \
  inline T NAME(T* address, T value) { return stitchsim::update(address, [&](T old) -> T { return EXPRESSION; }); }       \
  inline T NAME##_block(T* address, T value) { return NAME(address, value); }                                             \
  inline T NAME##_system(T* address, T value) { return NAME(address, value); }
#define STITCHSIM_INTEGERS(NAME, EXPRESSION)               \
  STITCHSIM_ATOMIC(NAME, int, EXPRESSION)                  \
  STITCHSIM_ATOMIC(NAME, unsigned, EXPRESSION)             \
  STITCHSIM_ATOMIC(NAME, unsigned long long, EXPRESSION)

STITCHSIM_INTEGERS(atomicAdd, (decltype(old))(old + value))
STITCHSIM_ATOMIC(atomicAdd, float, old + value)
STITCHSIM_ATOMIC(atomicAdd, double, old + value)
STITCHSIM_ATOMIC(atomicAdd, __half, __hadd(old, value))
STITCHSIM_ATOMIC(atomicAdd, __nv_bfloat16, __hadd(old, value))
STITCHSIM_ATOMIC(atomicSub, int, (int)((unsigned)old - (unsigned)value))
STITCHSIM_ATOMIC(atomicSub, unsigned, old - value)
STITCHSIM_INTEGERS(atomicExch, ((void)old, value))
STITCHSIM_ATOMIC(atomicExch, float, ((void)old, value))
STITCHSIM_INTEGERS(atomicMin, old < value ? old : value)
STITCHSIM_ATOMIC(atomicMin, long long, old < value ? old : value)
STITCHSIM_INTEGERS(atomicMax, old > value ? old : value)
STITCHSIM_ATOMIC(atomicMax, long long, old > value ? old : value)
STITCHSIM_ATOMIC(atomicInc, unsigned, old >= value ? 0u : old + 1u)
STITCHSIM_ATOMIC(atomicDec, unsigned, old == 0u || old > value ? value : old - 1u)
STITCHSIM_INTEGERS(atomicAnd, old & value)
STITCHSIM_INTEGERS(atomicOr, old | value)
STITCHSIM_INTEGERS(atomicXor, old ^ value)
#undef STITCHSIM_INTEGERS
#undef STITCHSIM_ATOMIC

inline __half2 atomicAdd(__half2* address, __half2 value) { return stitchsim::add_parts(address, value); }
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* address, __nv_bfloat162 value) { return stitchsim::add_parts(address, value); }
inline float2 atomicAdd(float2* address, float2 value) {
  return make_float2(atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y));
}
inline float4 atomicAdd(float4* address, float4 value) {
  return make_float4(atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y), atomicAdd(&address->z, value.z),
                     atomicAdd(&address->w, value.w));
}

#define STITCHSIM_CAS(T)                                                                                                \
  inline T atomicCAS(T* address, T expected, T wanted) { return stitchsim::exchange_if(address, expected, wanted); }    \
  inline T atomicCAS_block(T* address, T expected, T wanted) { return atomicCAS(address, expected, wanted); }           \
  inline T atomicCAS_system(T* address, T expected, T wanted) { return atomicCAS(address, expected, wanted); }
STITCHSIM_CAS(int)
STITCHSIM_CAS(unsigned)
STITCHSIM_CAS(unsigned long long)
STITCHSIM_CAS(unsigned short)
#undef STITCHSIM_CAS
