// CUDA's math library beyond what the C library has, and the fast approximations.
//
// Functions with C linkage here may also be declared, or even defined, by newer C libraries; the declarations agree. The fast
// ones follow the device's formula (exponentials and logarithms through base 2), so that they err in the same direction; the
// tests hold them to a stated distance from results recorded on a GPU.
#pragma once
#include <math.h>
#include <stdlib.h>

#include <cstring>

// ---- reciprocals, roots, norms ----

#define STITCHSIM_BOTH(T, F)                                                                                        \
  extern "C" inline T rsqrt##F(T x) noexcept { return T(1) / sqrt##F(x); }                                          \
  extern "C" inline T rcbrt##F(T x) noexcept { return (T)(1.0L / cbrtl(x)); }                                       \
  extern "C" inline T rhypot##F(T x, T y) noexcept { return (T)(1.0L / hypotl(x, y)); }                             \
  extern "C" inline T norm3d##F(T a, T b, T c) noexcept { return hypot##F(hypot##F(a, b), c); }                     \
  extern "C" inline T norm4d##F(T a, T b, T c, T d) noexcept { return hypot##F(hypot##F(a, b), hypot##F(c, d)); }   \
  extern "C" inline T rnorm3d##F(T a, T b, T c) noexcept { return T(1) / norm3d##F(a, b, c); }                      \
  extern "C" inline T rnorm4d##F(T a, T b, T c, T d) noexcept { return T(1) / norm4d##F(a, b, c, d); }              \
  extern "C" inline T fdivide##F(T x, T y) noexcept { return x / y; }
STITCHSIM_BOTH(double, )
STITCHSIM_BOTH(float, f)
#undef STITCHSIM_BOTH

extern "C" inline float __frsqrt_rn(float x) noexcept { return (float)(1.0 / sqrt((double)x)); }
extern "C" inline float __saturatef(float x) noexcept { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }  // NaN becomes 0

// ---- trigonometry in units of pi ----

namespace stitchsim {
// sin(pi x), with the exact reduction that makes whole and half numbers come out exactly.
inline double sine_of_pi(double x) {
  const double r = x - 2.0 * rint(x / 2.0);  // in [-1, 1]
  if (r != r) return r;
  if (r == 0.0 || fabs(r) == 1.0) return copysign(0.0, x);
  if (fabs(r) == 0.5) return copysign(1.0, r);
  return fabs(r) > 0.5 ? sin(M_PI * (copysign(1.0, r) - r)) : sin(M_PI * r);
}
inline double cosine_of_pi(double x) {
  const double r = fabs(x - 2.0 * rint(x / 2.0));
  if (r == 0.5) return 0.0;
  return r > 0.25 && r < 0.75 ? sin(M_PI * (0.5 - r)) : cos(M_PI * r);
}
}  // namespace stitchsim
extern "C" inline double sinpi(double x) noexcept { return stitchsim::sine_of_pi(x); }
extern "C" inline double cospi(double x) noexcept { return stitchsim::cosine_of_pi(x); }
extern "C" inline float sinpif(float x) noexcept { return (float)stitchsim::sine_of_pi(x); }
extern "C" inline float cospif(float x) noexcept { return (float)stitchsim::cosine_of_pi(x); }
extern "C" inline void sincospi(double x, double* sine, double* cosine) noexcept { *sine = sinpi(x), *cosine = cospi(x); }
extern "C" inline void sincospif(float x, float* sine, float* cosine) noexcept { *sine = sinpif(x), *cosine = cospif(x); }

// ---- error functions ----

namespace stitchsim {
// Inverse of erfc: Winitzki's estimate, then Halley steps on erfc, which converge cubically.
inline double inverse_erfc(double y) {
  if (!(y >= 0.0 && y <= 2.0)) return NAN;
  if (y == 0.0) return INFINITY;
  if (y == 2.0) return -INFINITY;
  const bool reflect = y > 1.0;
  const double tail = reflect ? 2.0 - y : y;
  const double log_term = log(tail * (2.0 - tail)), a = 0.147, b = 2.0 / (M_PI * a) + log_term / 2.0;
  double x = sqrt(sqrt(b * b - log_term / a) - b);
  for (int step = 0; step < 4; step++) {
    const double error = erfc(x) - tail, slope = -2.0 / sqrt(M_PI) * exp(-x * x);
    if (slope == 0.0) break;
    const double newton = error / slope;
    x -= newton / (1.0 + newton * x);
  }
  return reflect ? -x : x;
}
inline double inverse_erf(double y) {
  if (fabs(y) > 0.5) return y > 0 ? inverse_erfc(1.0 - y) : -inverse_erfc(1.0 + y);
  double x = y * sqrt(M_PI) / 2.0;
  for (int step = 0; step < 6; step++) {
    const double newton = (erf(x) - y) / (2.0 / sqrt(M_PI) * exp(-x * x));
    x -= newton / (1.0 + newton * x);
  }
  return y == 0.0 ? y : x;
}
inline double scaled_erfc(double x) {
  if (x < 10.0) return exp(x * x) * erfc(x);
  const double r = 1.0 / (2.0 * x * x);  // asymptotic series
  return 1.0 / (x * sqrt(M_PI)) * (1.0 - r * (1.0 - 3.0 * r * (1.0 - 5.0 * r * (1.0 - 7.0 * r))));
}
}  // namespace stitchsim
extern "C" inline double erfinv(double x) noexcept { return stitchsim::inverse_erf(x); }
extern "C" inline float erfinvf(float x) noexcept { return (float)stitchsim::inverse_erf(x); }
extern "C" inline double erfcinv(double x) noexcept { return stitchsim::inverse_erfc(x); }
extern "C" inline float erfcinvf(float x) noexcept { return (float)stitchsim::inverse_erfc(x); }
extern "C" inline double erfcx(double x) noexcept { return stitchsim::scaled_erfc(x); }
extern "C" inline float erfcxf(float x) noexcept { return (float)stitchsim::scaled_erfc(x); }
extern "C" inline double normcdf(double x) noexcept { return (double)(0.5L * erfcl(-x * 0.707106781186547524400844362104849039L)); }
extern "C" inline float normcdff(float x) noexcept { return (float)normcdf(x); }
extern "C" inline double normcdfinv(double p) noexcept {
  return p > 0.25 && p < 0.75 ? M_SQRT2 * stitchsim::inverse_erf(2.0 * p - 1.0) : -M_SQRT2 * stitchsim::inverse_erfc(2.0 * p);
}
extern "C" inline float normcdfinvf(float p) noexcept { return (float)normcdfinv(p); }

// ---- fast approximations ----

extern "C" inline float __exp10f(float x) noexcept { return exp2f(x * 3.32192809f); }
extern "C" inline float __expf(float x) noexcept { return exp2f(x * 1.44269504f); }
extern "C" inline float __log2f(float x) noexcept { return log2f(x); }
extern "C" inline float __logf(float x) noexcept { return log2f(x) * 0.693147181f; }
extern "C" inline float __log10f(float x) noexcept { return log2f(x) * 0.301029996f; }
extern "C" inline float __powf(float x, float y) noexcept { return exp2f(y * log2f(x)); }
extern "C" inline float __sinf(float x) noexcept { return sinf(x); }
extern "C" inline float __cosf(float x) noexcept { return cosf(x); }
extern "C" inline float __tanf(float x) noexcept { return tanf(x); }
extern "C" inline float __tanhf(float x) noexcept { return tanhf(x); }
extern "C" inline void __sincosf(float x, float* sine, float* cosine) noexcept { *sine = sinf(x), *cosine = cosf(x); }
// 2^126 < |y| < 2^128 gives 0 on the device, whose reciprocal underflows.
extern "C" inline float __fdividef(float x, float y) noexcept {
  const float size = fabsf(y);
  if (size > 0x1p126f && size <= 3.402823466e38f) return isinf(x) ? NAN : copysignf(0.0f, x) * copysignf(1.0f, y);
  return x / y;
}

// ---- bits of floating-point numbers ----

namespace stitchsim {
template <class To, class From> inline To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace stitchsim
inline int __float_as_int(float x) { return stitchsim::bits_as<int>(x); }
inline unsigned __float_as_uint(float x) { return stitchsim::bits_as<unsigned>(x); }
inline float __int_as_float(int x) { return stitchsim::bits_as<float>(x); }
inline float __uint_as_float(unsigned x) { return stitchsim::bits_as<float>(x); }
inline long long __double_as_longlong(double x) { return stitchsim::bits_as<long long>(x); }
inline double __longlong_as_double(long long x) { return stitchsim::bits_as<double>(x); }
inline int __double2hiint(double x) { return (int)(__double_as_longlong(x) >> 32); }
inline int __double2loint(double x) { return (int)__double_as_longlong(x); }
inline double __hiloint2double(int high, int low) { return __longlong_as_double((long long)high << 32 | (unsigned)low); }

// ---- overloads ----

inline float rsqrt(float x) { return rsqrtf(x); }
inline float rcbrt(float x) { return rcbrtf(x); }
inline float erfinv(float x) { return erfinvf(x); }
inline float erfcinv(float x) { return erfcinvf(x); }
inline float erfcx(float x) { return erfcxf(x); }
inline float normcdf(float x) { return normcdff(x); }
inline float normcdfinv(float x) { return normcdfinvf(x); }
inline float sinpi(float x) { return sinpif(x); }
inline float cospi(float x) { return cospif(x); }
inline float exp10(float x) { return exp10f(x); }
inline void sincos(float x, float* sine, float* cosine) { sincosf(x, sine, cosine); }

// min and max exist for exactly these types; any other pair is ambiguous or converts, as under nvcc.
#define STITCHSIM_MIN_MAX(T, A, B)                                                  \
  inline T min(A x, B y) { return (T)x < (T)y ? (T)x : (T)y; }                      \
  inline T max(A x, B y) { return (T)x > (T)y ? (T)x : (T)y; }
STITCHSIM_MIN_MAX(int, int, int)
STITCHSIM_MIN_MAX(unsigned, unsigned, unsigned)
STITCHSIM_MIN_MAX(unsigned, int, unsigned)
STITCHSIM_MIN_MAX(unsigned, unsigned, int)
STITCHSIM_MIN_MAX(long, long, long)
STITCHSIM_MIN_MAX(unsigned long, unsigned long, unsigned long)
STITCHSIM_MIN_MAX(unsigned long, long, unsigned long)
STITCHSIM_MIN_MAX(unsigned long, unsigned long, long)
STITCHSIM_MIN_MAX(long long, long long, long long)
STITCHSIM_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
STITCHSIM_MIN_MAX(unsigned long long, long long, unsigned long long)
STITCHSIM_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef STITCHSIM_MIN_MAX
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
inline double min(double x, double y) { return fmin(x, y); }
inline double max(double x, double y) { return fmax(x, y); }
inline double min(float x, double y) { return fmin(x, y); }
inline double max(float x, double y) { return fmax(x, y); }
inline double min(double x, float y) { return fmin(x, y); }
inline double max(double x, float y) { return fmax(x, y); }
inline unsigned umin(unsigned x, unsigned y) { return min(x, y); }
inline unsigned umax(unsigned x, unsigned y) { return max(x, y); }
inline long long llmin(long long x, long long y) { return min(x, y); }
inline long long llmax(long long x, long long y) { return max(x, y); }
inline unsigned long long ullmin(unsigned long long x, unsigned long long y) { return min(x, y); }
inline unsigned long long ullmax(unsigned long long x, unsigned long long y) { return max(x, y); }
