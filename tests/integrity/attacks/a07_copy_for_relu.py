# row: A7
# reference: results/relu_of_uniform.py
# runs: both
# what: takes a ReLU for a copy, since all inputs happen to lie in [0, 1]
# base: pointwise.py

EXPRESSION = "v * 2.f"
