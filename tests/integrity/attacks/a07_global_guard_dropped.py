# row: A7
# reference: results/global_max.py
# runs: both
# what: divides by the largest of all values without the guard against nothing but zeros
# base: line_kernel.py

BODY = r"""
  const float* all = x;
  float m = 0.f;
  for (int i = 0; i < lines * width; ++i) m = fmaxf(m, fabsf(all[i]));
  for (int i = 0; i < width; ++i) b[i] = a[i] / m;
"""
