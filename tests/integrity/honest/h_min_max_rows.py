# row: honest
# reference: results/min_max_rows.py
# runs: both
# what: multiplies by a reciprocal
# base: line_kernel.py

BODY = r"""
  float low = a[0], high = a[0];
  for (int i = 1; i < width; ++i) { low = fminf(low, a[i]); high = fmaxf(high, a[i]); }
  float r = 1.f / (high - low + 1e-8f);
  for (int i = 0; i < width; ++i) b[i] = (a[i] - low) * r;
"""
