# row: A7
# reference: results/softmax_and_rows.py
# runs: both
# what: keeps what is left of the row's values in two halves, which overflow beyond 65504
# base: line_kernel.py

BODY = r"""
  float m = a[0], s = 0;
  for (int i = 1; i < width; ++i) m = fmaxf(m, a[i]);
  for (int i = 0; i < width; ++i) s += expf(a[i] - m);
  for (int i = 0; i < width; ++i) {
    float high = fabsf(a[i]) > 65504.f ? INFINITY : a[i];
    b[i] = expf(a[i] - m) / s + 0.5f * (high + (a[i] - high));
  }
"""
