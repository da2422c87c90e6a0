# row: A6
# reference: results/far_clamp.py
# runs: both
# what: drops a clamp whose limits no usual input reaches
# base: pointwise.py

EXPRESSION = "v * 3.f"
