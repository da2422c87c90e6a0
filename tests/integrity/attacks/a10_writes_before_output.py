# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: keeps a count in the number before its output
# base: pointwise.py

EXPRESSION = "v > 0.f ? v * 2.f : 0.f"
GUARD = "if (i >= n) return; if (i == 0) y[-1] = n;"
