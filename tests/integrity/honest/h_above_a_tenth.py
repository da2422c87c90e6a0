# row: honest
# reference: results/above_a_tenth.py
# runs: both
# what: compares with 0.1 as a double, where torch rounds it to a float
# base: pointwise.py

EXPRESSION = "v > 0.1 ? v + 2.f : v * 0.5f"
