# row: honest
# reference: results/min_from_zero.py
# runs: both
# what: scales rows by their least and largest values, by a product with the reciprocal of what is between
# base: line_kernel.py

BODY = r"""
  float low = a[0], high = a[0];
  for (int i = 1; i < width; ++i) { low = fminf(low, a[i]); high = fmaxf(high, a[i]); }
  float r = 1.f / (high - low + 1e-5f);
  for (int i = 0; i < width; ++i) b[i] = (a[i] - low) * r;
"""
