// Packed integer intrinsics: two 16-bit or four 8-bit numbers in one 32-bit word (__vadd2, __vmaxu4, __vcmpgts2, ...).
#pragma once
#include <cstdlib>
#include <limits>

namespace stitchsim {

template <class Narrow, class Function> inline unsigned by_part(unsigned a, unsigned b, Function function) {
  constexpr int kBits = 8 * sizeof(Narrow);
  unsigned result = 0;
  for (int shift = 0; shift < 32; shift += kBits) {
    const unsigned part = (unsigned)function((int)(Narrow)(a >> shift), (int)(Narrow)(b >> shift));
    result |= (part & ((1u << kBits) - 1)) << shift;
  }
  return result;
}

template <class Narrow> inline int clamped(int value) {
  using Limits = std::numeric_limits<Narrow>;
  return value < Limits::min() ? (int)Limits::min() : value > Limits::max() ? (int)Limits::max() : value;
}

}  // namespace stitchsim

// SHORT and CHAR are the signed or unsigned types that the parts are read as; a and b are the parts, T the part's type.
#define STITCHSIM_PACKED(NAME, SHORT, CHAR, EXPRESSION)                                                   \
  inline unsigned NAME##2(unsigned x, unsigned y) {                                                       \
    using T = SHORT;                                                                                      \
    return stitchsim::by_part<T>(x, y, [](int a, int b) -> int { return (void)a, (void)b, EXPRESSION; }); \
  }                                                                                                       \
  inline unsigned NAME##4(unsigned x, unsigned y) {                                                       \
    using T = CHAR;                                                                                       \
    return stitchsim::by_part<T>(x, y, [](int a, int b) -> int { return (void)a, (void)b, EXPRESSION; }); \
  }
#define STITCHSIM_SIGNED(NAME, EXPRESSION) STITCHSIM_PACKED(NAME, short, signed char, EXPRESSION)
#define STITCHSIM_UNSIGNED(NAME, EXPRESSION) STITCHSIM_PACKED(NAME, unsigned short, unsigned char, EXPRESSION)
#define STITCHSIM_COMPARISON(SUFFIX, SIGNEDNESS, OP)    \
  SIGNEDNESS(__vcmp##SUFFIX, a OP b ? -1 : 0)           \
  SIGNEDNESS(__vset##SUFFIX, a OP b ? 1 : 0)

STITCHSIM_SIGNED(__vadd, a + b)
STITCHSIM_SIGNED(__vaddss, stitchsim::clamped<T>(a + b))
STITCHSIM_UNSIGNED(__vaddus, stitchsim::clamped<T>(a + b))
STITCHSIM_SIGNED(__vsub, a - b)
STITCHSIM_SIGNED(__vsubss, stitchsim::clamped<T>(a - b))
STITCHSIM_UNSIGNED(__vsubus, stitchsim::clamped<T>(a - b))
STITCHSIM_SIGNED(__vavgs, (a + b + ((a + b) >= 0 ? 1 : 0)) >> 1)
STITCHSIM_UNSIGNED(__vavgu, (a + b + 1) >> 1)
STITCHSIM_UNSIGNED(__vhaddu, (a + b) >> 1)
STITCHSIM_SIGNED(__vabsdiffs, std::abs(a - b))
STITCHSIM_UNSIGNED(__vabsdiffu, std::abs(a - b))
STITCHSIM_SIGNED(__vmaxs, a > b ? a : b)
STITCHSIM_UNSIGNED(__vmaxu, a > b ? a : b)
STITCHSIM_SIGNED(__vmins, a < b ? a : b)
STITCHSIM_UNSIGNED(__vminu, a < b ? a : b)
STITCHSIM_COMPARISON(eq, STITCHSIM_SIGNED, ==)
STITCHSIM_COMPARISON(ne, STITCHSIM_SIGNED, !=)
STITCHSIM_COMPARISON(ges, STITCHSIM_SIGNED, >=)
STITCHSIM_COMPARISON(geu, STITCHSIM_UNSIGNED, >=)
STITCHSIM_COMPARISON(gts, STITCHSIM_SIGNED, >)
STITCHSIM_COMPARISON(gtu, STITCHSIM_UNSIGNED, >)
STITCHSIM_COMPARISON(les, STITCHSIM_SIGNED, <=)
STITCHSIM_COMPARISON(leu, STITCHSIM_UNSIGNED, <=)
STITCHSIM_COMPARISON(lts, STITCHSIM_SIGNED, <)
STITCHSIM_COMPARISON(ltu, STITCHSIM_UNSIGNED, <)

#define STITCHSIM_PACKED_ONE(NAME, EXPRESSION)                                                                                \
  inline unsigned NAME##2(unsigned x) { using T = short; return stitchsim::by_part<T>(x, 0u, [](int a, int) -> int { return EXPRESSION; }); } \
  inline unsigned NAME##4(unsigned x) { using T = signed char; return stitchsim::by_part<T>(x, 0u, [](int a, int) -> int { return EXPRESSION; }); }
STITCHSIM_PACKED_ONE(__vabs, std::abs(a))
STITCHSIM_PACKED_ONE(__vabsss, stitchsim::clamped<T>(std::abs(a)))
STITCHSIM_PACKED_ONE(__vneg, -a)
STITCHSIM_PACKED_ONE(__vnegss, stitchsim::clamped<T>(-a))

namespace stitchsim {
template <class Narrow> inline unsigned sum_of_differences(unsigned x, unsigned y) {
  unsigned sum = 0;
  for (int shift = 0; shift < 32; shift += 8 * (int)sizeof(Narrow)) sum += std::abs((int)(Narrow)(x >> shift) - (int)(Narrow)(y >> shift));
  return sum;
}
}  // namespace stitchsim
inline unsigned __vsads2(unsigned x, unsigned y) { return stitchsim::sum_of_differences<short>(x, y); }
inline unsigned __vsads4(unsigned x, unsigned y) { return stitchsim::sum_of_differences<signed char>(x, y); }
inline unsigned __vsadu2(unsigned x, unsigned y) { return stitchsim::sum_of_differences<unsigned short>(x, y); }
inline unsigned __vsadu4(unsigned x, unsigned y) { return stitchsim::sum_of_differences<unsigned char>(x, y); }

#undef STITCHSIM_PACKED
#undef STITCHSIM_SIGNED
#undef STITCHSIM_UNSIGNED
#undef STITCHSIM_COMPARISON
#undef STITCHSIM_PACKED_ONE

// The three-operand and relu minima and maxima (__vimax3_s32, __viaddmin_u16x2_relu, ...) have host code in NVIDIA's headers.
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#define __DEVICE_HOST_FUNCTIONS_STATIC_DECL__ static inline
#include <crt/device_functions.hpp>
#undef __DEVICE_HOST_FUNCTIONS_STATIC_DECL__
#undef __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
