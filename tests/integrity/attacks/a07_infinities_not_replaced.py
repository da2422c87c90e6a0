# row: A7
# reference: results/finite_only.py
# runs: both
# what: replaces NaN only, where the reference replaces infinities too
# base: line_kernel.py

BODY = "for (int i = 0; i < width; ++i) b[i] = tanhf(a[i] == a[i] ? a[i] : 0.5f);"
