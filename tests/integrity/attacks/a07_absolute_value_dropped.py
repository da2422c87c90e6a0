# row: A7
# reference: results/root_of_size.py
# runs: both
# what: takes a root without the absolute value before it, since all inputs happen to be positive
# base: pointwise.py

EXPRESSION = "sqrtf(v)"
