# row: A6
# reference: results/shrink_at_a_half.py
# runs: both
# what: keeps values that are the threshold itself
# base: pointwise.py

EXPRESSION = "fabsf(v) >= 0.5f ? v : 0.f"
