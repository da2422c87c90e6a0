// Half and bfloat16: what NVIDIA's headers leave to the device. Conversions, comparisons and plain arithmetic come from those
// headers' own host code; here are fused multiply-add, transcendental functions, rounding to integers and the missing conversions.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>

#include "math.h"
#include "rounding.h"

namespace stitchsim {

inline float widen(__half x) { return __half2float(x); }
inline float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <class S> inline S narrowed(float x);
template <> inline __half narrowed<__half>(float x) { return __float2half_rn(x); }
template <> inline __nv_bfloat16 narrowed<__nv_bfloat16>(float x) { return __float2bfloat16_rn(x); }
inline void narrow_to(double x, __half* to) { *to = __double2half(x); }
inline void narrow_to(double x, __nv_bfloat16* to) { *to = __double2bfloat16(x); }

// a * b is exact in double precision; the sum is rounded to odd there, so that rounding it once more is as if done once.
template <class S> inline S fused(S a, S b, S c) {
  const double product = (double)widen(a) * (double)widen(b), addend = widen(c);
  double sum = product + addend;
  if (std::isfinite(sum)) {
    const double back = sum - product, error = (product - (sum - back)) + (addend - back);
    if (error != 0.0 && (bits_as<long long>(sum) & 1) == 0) sum = std::nextafter(sum, error > 0.0 ? INFINITY : -INFINITY);
  }
  S result;
  narrow_to(sum, &result);
  return result;
}

template <class S> inline S clamp_to_one(S x) { return widen(x) > 0.0f ? (widen(x) < 1.0f ? x : narrowed<S>(1.0f)) : narrowed<S>(0.0f); }
template <class S> inline S clamp_negative(S x) { return widen(x) < 0.0f ? narrowed<S>(0.0f) : x; }  // NaN stays

}  // namespace stitchsim

#define STITCHSIM_NARROW_FUNCTION(S, V, NAME, EXPRESSION)                                    \
  inline S h##NAME(S h) {                                                                    \
    const float x = stitchsim::widen(h);                                                     \
    return stitchsim::narrowed<S>(EXPRESSION);                                               \
  }                                                                                          \
  inline V h2##NAME(V h) { return V(h##NAME(h.x), h##NAME(h.y)); }

#define STITCHSIM_NARROW(S, V)                                                               \
  STITCHSIM_NARROW_FUNCTION(S, V, exp, expf(x))                                              \
  STITCHSIM_NARROW_FUNCTION(S, V, exp2, exp2f(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, exp10, exp10f(x))                                          \
  STITCHSIM_NARROW_FUNCTION(S, V, log, logf(x))                                              \
  STITCHSIM_NARROW_FUNCTION(S, V, log2, log2f(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, log10, log10f(x))                                          \
  STITCHSIM_NARROW_FUNCTION(S, V, sin, sinf(x))                                              \
  STITCHSIM_NARROW_FUNCTION(S, V, cos, cosf(x))                                              \
  STITCHSIM_NARROW_FUNCTION(S, V, sqrt, sqrtf(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, rsqrt, rsqrtf(x))                                          \
  STITCHSIM_NARROW_FUNCTION(S, V, rcp, 1.0f / x)                                             \
  STITCHSIM_NARROW_FUNCTION(S, V, tanh, tanhf(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, tanh_approx, tanhf(x))                                     \
  STITCHSIM_NARROW_FUNCTION(S, V, ceil, ceilf(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, floor, floorf(x))                                          \
  STITCHSIM_NARROW_FUNCTION(S, V, rint, rintf(x))                                            \
  STITCHSIM_NARROW_FUNCTION(S, V, trunc, truncf(x))                                          \
  inline S __hfma(S a, S b, S c) { return stitchsim::fused(a, b, c); }                       \
  inline S __hfma_sat(S a, S b, S c) { return stitchsim::clamp_to_one(__hfma(a, b, c)); }    \
  inline S __hfma_relu(S a, S b, S c) { return stitchsim::clamp_negative(__hfma(a, b, c)); } \
  inline V __hfma2(V a, V b, V c) { return V(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); }                \
  inline V __hfma2_sat(V a, V b, V c) { return V(__hfma_sat(a.x, b.x, c.x), __hfma_sat(a.y, b.y, c.y)); }    \
  inline V __hfma2_relu(V a, V b, V c) { return V(__hfma_relu(a.x, b.x, c.x), __hfma_relu(a.y, b.y, c.y)); } \
  inline V __hcmadd(V a, V b, V c) {  /* complex a * b + c */                                \
    const S real = __hfma(__hneg(a.y), b.y, __hfma(a.x, b.x, c.x));                          \
    const S imaginary = __hfma(a.y, b.x, __hfma(a.x, b.y, c.y));                             \
    return V(real, imaginary);                                                               \
  }
STITCHSIM_NARROW(__half, __half2)
STITCHSIM_NARROW(__nv_bfloat16, __nv_bfloat162)

// Narrow to integer under a rounding mode (towards zero is in NVIDIA's headers).
#define STITCHSIM_NARROW_TO(S, NAME, TO, WORD)                                                                        \
  inline TO NAME##WORD##_rn(S h) { return stitchsim::saturated<TO>(rintf(stitchsim::widen(h))); }                     \
  inline TO NAME##WORD##_rd(S h) { return stitchsim::saturated<TO>(floorf(stitchsim::widen(h))); }                    \
  inline TO NAME##WORD##_ru(S h) { return stitchsim::saturated<TO>(ceilf(stitchsim::widen(h))); }
#define STITCHSIM_NARROW_TO_ALL(S, NAME)                       \
  STITCHSIM_NARROW_TO(S, NAME, int, int)                       \
  STITCHSIM_NARROW_TO(S, NAME, unsigned, uint)                 \
  STITCHSIM_NARROW_TO(S, NAME, short, short)                   \
  STITCHSIM_NARROW_TO(S, NAME, unsigned short, ushort)         \
  STITCHSIM_NARROW_TO(S, NAME, long long, ll)                  \
  STITCHSIM_NARROW_TO(S, NAME, unsigned long long, ull)
STITCHSIM_NARROW_TO_ALL(__half, __half2)
STITCHSIM_NARROW_TO_ALL(__nv_bfloat16, __bfloat162)

// Integer to bfloat16 in a directed mode: through fp32 in the same mode, where rounding twice is rounding once.
#define STITCHSIM_TO_BFLOAT16(FROM, WORD, WIDE)                                                                  \
  inline __nv_bfloat16 __##WORD##2bfloat16_rz(FROM x) { return __float2bfloat16_rz(__##WIDE##2float_rz(x)); }    \
  inline __nv_bfloat16 __##WORD##2bfloat16_rd(FROM x) { return __float2bfloat16_rd(__##WIDE##2float_rd(x)); }    \
  inline __nv_bfloat16 __##WORD##2bfloat16_ru(FROM x) { return __float2bfloat16_ru(__##WIDE##2float_ru(x)); }
STITCHSIM_TO_BFLOAT16(int, int, int)
STITCHSIM_TO_BFLOAT16(unsigned, uint, uint)
STITCHSIM_TO_BFLOAT16(short, short, int)
STITCHSIM_TO_BFLOAT16(unsigned short, ushort, uint)
STITCHSIM_TO_BFLOAT16(long long, ll, ll)
STITCHSIM_TO_BFLOAT16(unsigned long long, ull, ull)
