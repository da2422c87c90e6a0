// Conversions between number types with a rounding mode, and bit casts. Out-of-range values saturate, NaN becomes 0 (or the
// lowest value for 64-bit results), as the recording shows.
#include "cases.cuh"

#define ROUNDINGS(NAME, TYPE, RESULT)                       \
  CASE(NAME##_rn, TYPE, RESULT, exact(), NAME##_rn(x))      \
  CASE(NAME##_rz, TYPE, RESULT, exact(), NAME##_rz(x))      \
  CASE(NAME##_ru, TYPE, RESULT, exact(), NAME##_ru(x))      \
  CASE(NAME##_rd, TYPE, RESULT, exact(), NAME##_rd(x))

ROUNDINGS(__float2int, float, int)
ROUNDINGS(__float2uint, float, unsigned)
ROUNDINGS(__float2ll, float, long long)
ROUNDINGS(__float2ull, float, Word)
ROUNDINGS(__double2int, double, int)
ROUNDINGS(__double2uint, double, unsigned)
ROUNDINGS(__double2ll, double, long long)
ROUNDINGS(__double2ull, double, Word)
ROUNDINGS(__double2float, double, float)
ROUNDINGS(__int2float, int, float)
ROUNDINGS(__uint2float, unsigned, float)
ROUNDINGS(__ll2float, long long, float)
ROUNDINGS(__ull2float, Word, float)
ROUNDINGS(__ll2double, long long, double)
ROUNDINGS(__ull2double, Word, double)
CASE(__int2double_rn, int, double, exact(), __int2double_rn(x))
CASE(__uint2double_rn, unsigned, double, exact(), __uint2double_rn(x))
CASE(__float_as_int, float, int, exact(), __float_as_int(u))
CASE(__float_as_uint, float, unsigned, exact(), __float_as_uint(u))
CASE(__int_as_float, int, float, exact(), __int_as_float(x))
CASE(__uint_as_float, unsigned, float, exact(), __uint_as_float(x))

EXPORT_CASES
