# row: honest
# reference: results/shrink_at_a_half.py
# runs: both
# what: leaves out values that are the threshold itself
# base: pointwise.py

EXPRESSION = "fabsf(v) > 0.5f ? v : 0.f"
