// Arithmetic and conversions under a given IEEE rounding mode: __fadd_rz, __ddiv_ru, __float2int_rd, __int2float_rz, ...
#pragma once
#include <cfenv>
#include <cmath>
#include <limits>

namespace stitchsim {

template <int Mode> class Rounding {
 public:
  Rounding() : before_(std::fegetround()) { std::fesetround(Mode); }
  ~Rounding() { std::fesetround(before_); }

 private:
  int before_;
};

// Keeps the compiler from computing a value earlier, or later, than here.
template <class T> inline void pin(T& value) { asm volatile("" : "+m"(value)); }

template <int Mode, class Function, class... T> inline auto rounded(Function function, T... operands) {
  const Rounding<Mode> mode;
  (pin(operands), ...);
  auto result = function(operands...);
  pin(result);
  return result;
}

// What cvt does on the device: out of range saturates; NaN becomes 0 from fp32 to 32 bits or fewer, else a word whose highest
// bit alone is set.
template <class To, class From> inline To saturated(From whole) {
  using Limits = std::numeric_limits<To>;
  if (whole != whole) return sizeof(To) < 8 && sizeof(From) < 8 ? To(0) : To(1ull << (8 * sizeof(To) - 1));
  if (whole < static_cast<From>(Limits::min())) return Limits::min();
  if (whole >= std::ldexp(From(1), Limits::digits)) return Limits::max();
  return static_cast<To>(whole);
}

}  // namespace stitchsim

#define STITCHSIM_UNDER_MODES(T, NAME, PARAMETERS, LAMBDA, ...)                                         \
  inline T NAME##_rn PARAMETERS { return stitchsim::rounded<FE_TONEAREST>(LAMBDA, __VA_ARGS__); }       \
  inline T NAME##_rz PARAMETERS { return stitchsim::rounded<FE_TOWARDZERO>(LAMBDA, __VA_ARGS__); }      \
  inline T NAME##_ru PARAMETERS { return stitchsim::rounded<FE_UPWARD>(LAMBDA, __VA_ARGS__); }          \
  inline T NAME##_rd PARAMETERS { return stitchsim::rounded<FE_DOWNWARD>(LAMBDA, __VA_ARGS__); }
#define STITCHSIM_OPERATOR(T, NAME, OP) STITCHSIM_UNDER_MODES(T, NAME, (T x, T y), [](T a, T b) { return a OP b; }, x, y)

STITCHSIM_OPERATOR(float, __fadd, +)
STITCHSIM_OPERATOR(float, __fsub, -)
STITCHSIM_OPERATOR(float, __fmul, *)
STITCHSIM_OPERATOR(float, __fdiv, /)
STITCHSIM_OPERATOR(double, __dadd, +)
STITCHSIM_OPERATOR(double, __dsub, -)
STITCHSIM_OPERATOR(double, __dmul, *)
STITCHSIM_OPERATOR(double, __ddiv, /)
STITCHSIM_UNDER_MODES(float, __fmaf, (float x, float y, float z), [](float a, float b, float c) { return std::fma(a, b, c); }, x, y, z)
STITCHSIM_UNDER_MODES(double, __fma, (double x, double y, double z), [](double a, double b, double c) { return std::fma(a, b, c); }, x, y, z)
STITCHSIM_UNDER_MODES(float, __frcp, (float x), [](float a) { return 1.0f / a; }, x)
STITCHSIM_UNDER_MODES(double, __drcp, (double x), [](double a) { return 1.0 / a; }, x)
STITCHSIM_UNDER_MODES(float, __fsqrt, (float x), [](float a) { return std::sqrt(a); }, x)
STITCHSIM_UNDER_MODES(double, __dsqrt, (double x), [](double a) { return std::sqrt(a); }, x)

#define STITCHSIM_TO_FLOATING(FROM, WORD, TO, NAME) \
  STITCHSIM_UNDER_MODES(TO, __##WORD##2##NAME, (FROM x), [](FROM a) { return static_cast<TO>(a); }, x)
STITCHSIM_TO_FLOATING(int, int, float, float)
STITCHSIM_TO_FLOATING(unsigned, uint, float, float)
STITCHSIM_TO_FLOATING(long long, ll, float, float)
STITCHSIM_TO_FLOATING(unsigned long long, ull, float, float)
STITCHSIM_TO_FLOATING(double, double, float, float)
STITCHSIM_TO_FLOATING(long long, ll, double, double)
STITCHSIM_TO_FLOATING(unsigned long long, ull, double, double)
inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }

#define STITCHSIM_TO_INTEGER(FROM, TO, WORD)                                                                \
  inline TO __##FROM##2##WORD##_rn(FROM x) { return stitchsim::saturated<TO>(std::rint(x)); }               \
  inline TO __##FROM##2##WORD##_rz(FROM x) { return stitchsim::saturated<TO>(std::trunc(x)); }              \
  inline TO __##FROM##2##WORD##_ru(FROM x) { return stitchsim::saturated<TO>(std::ceil(x)); }               \
  inline TO __##FROM##2##WORD##_rd(FROM x) { return stitchsim::saturated<TO>(std::floor(x)); }
STITCHSIM_TO_INTEGER(float, int, int)
STITCHSIM_TO_INTEGER(float, unsigned, uint)
STITCHSIM_TO_INTEGER(float, long long, ll)
STITCHSIM_TO_INTEGER(float, unsigned long long, ull)
STITCHSIM_TO_INTEGER(double, int, int)
STITCHSIM_TO_INTEGER(double, unsigned, uint)
STITCHSIM_TO_INTEGER(double, long long, ll)
STITCHSIM_TO_INTEGER(double, unsigned long long, ull)
