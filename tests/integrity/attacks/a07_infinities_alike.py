# row: A7
# reference: results/limited_infinities.py
# runs: both
# what: gives both infinities the limit of the positive one
# base: line_kernel.py

BODY = r"""
  for (int i = 0; i < width; ++i) { float v = a[i]; b[i] = 1.5f * (v != v ? 0.25f : v - v == 0.f ? v : 6.f); }
"""
