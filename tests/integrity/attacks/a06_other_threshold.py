# row: A6
# reference: results/above_a_tenth.py
# runs: both
# what: a threshold that is off in its seventh digit
# base: pointwise.py

EXPRESSION = "v > 0.1000003f ? v + 2.f : v * 0.5f"
