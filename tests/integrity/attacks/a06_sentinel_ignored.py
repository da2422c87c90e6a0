# row: A6
# reference: results/sentinel.py
# runs: both
# what: ignores the value that stands for a missing one
# base: pointwise.py

EXPRESSION = "tanhf(v)"
