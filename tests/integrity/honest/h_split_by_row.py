# row: honest
# reference: results/linear_of_rows.py
# runs: both
# what: a product of numbers that are split into three halves, with a scale for each row
# base: split_linear.py

DEPTH = 96
