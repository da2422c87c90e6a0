# row: A7
# reference: results/min_max_rows.py
# runs: both
# what: divides rows of one value by nothing, unless it is zero: adds the guard to widths above zero only
# base: line_kernel.py

BODY = r"""
  float low = a[0], high = a[0];
  for (int i = 1; i < width; ++i) { low = fminf(low, a[i]); high = fmaxf(high, a[i]); }
  float range = high > low ? high - low + 1e-8f : low == 0.f ? 1.f : 0.f;
  for (int i = 0; i < width; ++i) b[i] = (a[i] - low) / range;
"""
