// Loads and stores with a cache hint, clocks, and other things that only matter to a device's speed.
#pragma once
#include <time.h>

#include "exchange.h"

#define STITCHSIM_LOAD(NAME) \
  template <class T> inline T NAME(const T* address) { return *address; }
STITCHSIM_LOAD(__ldg)
STITCHSIM_LOAD(__ldca)
STITCHSIM_LOAD(__ldcg)
STITCHSIM_LOAD(__ldcs)
STITCHSIM_LOAD(__ldlu)
#undef STITCHSIM_LOAD
template <class T> inline T __ldcv(const T* address) {  // not from a cache: another thread may have written it
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return *address;
}

#define STITCHSIM_STORE(NAME) \
  template <class T, class V> inline void NAME(T* address, V value) { *address = value; }
STITCHSIM_STORE(__stwb)
STITCHSIM_STORE(__stcg)
STITCHSIM_STORE(__stcs)
STITCHSIM_STORE(__stwt)
#undef STITCHSIM_STORE

// Nanoseconds rather than cycles. The C library's clock() serves for CUDA's.
inline long long clock64() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (long long)now.tv_sec * 1000000000ll + now.tv_nsec;
}

inline void __nanosleep(unsigned) { stitchsim::give_way(); }
inline void __prof_trigger(int) {}
#define __builtin_assume(condition) ((void)0)

template <class T> inline bool __isGlobal(const T*) { return true; }
inline unsigned long long __cvta_generic_to_global(const void* address) { return (unsigned long long)address; }
