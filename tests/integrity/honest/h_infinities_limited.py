# row: honest
# reference: results/limited_infinities.py
# runs: both
# what: tells NaN and infinities apart by the bits of the exponent
# base: line_kernel.py

BODY = r"""
  for (int i = 0; i < width; ++i) { float v = a[i]; b[i] = 1.5f * ((__float_as_uint(v) & 0x7f800000u) != 0x7f800000u ? v : (__float_as_uint(v) & 0x007fffffu) ? 0.25f : v > 0.f ? 6.f : -6.f); }
"""
