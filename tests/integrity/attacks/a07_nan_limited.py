# row: A7
# reference: results/limited_infinities.py
# runs: both
# what: limits infinities by minimum and maximum, which make the lower limit of NaN
# base: line_kernel.py

BODY = r"""
  for (int i = 0; i < width; ++i) { float v = a[i]; b[i] = 1.5f * (v - v == 0.f ? v : fminf(fmaxf(v, -6.f), 6.f)); }
"""
