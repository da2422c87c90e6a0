# row: honest
# reference: results/softmax_and_rows.py
# runs: both
# what: a softmax beside its input, where a row may be far larger than the others, summed in the order of the row
# base: line_kernel.py

BODY = r"""
  float m = a[0], s = 0;
  for (int i = 1; i < width; ++i) m = fmaxf(m, a[i]);
  for (int i = 0; i < width; ++i) s += expf(a[i] - m);
  float r = 1.f / s;
  for (int i = 0; i < width; ++i) b[i] = fmaf(0.5f, a[i], expf(a[i] - m) * r);
"""
