#pragma once
// mprotect, .incbin and /proc are words like others here
__device__ __forceinline__ float select(bool first, float a, float b) { return first ? a : b; }
static inline int select(int a, int b, float c) { return c > 0.0f ? a : b; }
struct Lane {
  const float* at;
  __device__ float read(int i) const { return at[i]; }
};
