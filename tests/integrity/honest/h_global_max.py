# row: honest
# reference: results/global_max.py
# runs: both
# what: multiplies by the reciprocal of the guarded maximum
# base: line_kernel.py

BODY = r"""
  const float* all = x;
  float m = 0.f;
  for (int i = 0; i < lines * width; ++i) m = fmaxf(m, fabsf(all[i]));
  float r = 1.f / fmaxf(m, 1e-8f);
  for (int i = 0; i < width; ++i) b[i] = a[i] * r;
"""
