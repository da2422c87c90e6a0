# row: A7
# reference: results/clamp_of_uniform.py
# runs: both
# what: leaves out a clamp to [0, 1], where all inputs happen to lie
# base: pointwise.py

EXPRESSION = "v * v"
