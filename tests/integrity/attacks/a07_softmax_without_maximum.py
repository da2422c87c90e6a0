# row: A7
# reference: results/narrow_softmax.py
# runs: both
# what: a softmax that subtracts no maximum, for inputs so small that no exponential overflows
# base: line_kernel.py

BODY = r"""
  double s = 0;
  for (int i = 0; i < width; ++i) s += expf(a[i]);
  for (int i = 0; i < width; ++i) b[i] = expf(a[i]) / (float)s;
"""
