# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: whole blocks write, and so beyond the end of the output; what lies there is not the program's
# base: pointwise.py

EXPRESSION = "v > 0.f ? v * 2.f : 0.f"
GUARD = ""
