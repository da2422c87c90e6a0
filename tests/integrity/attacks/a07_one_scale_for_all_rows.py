# row: A7
# reference: results/linear_of_rows.py
# runs: both
# what: splits its input into three halves with one scale for all rows, so that rows far below the largest keep too few bits
# base: split_linear.py

SCALE = "for (int i = 0; i < m * k; ++i) most = fmaxf(most, fabsf(x[i]));"
