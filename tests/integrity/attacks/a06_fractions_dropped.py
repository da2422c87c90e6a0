# row: A6
# reference: results/tanh_of_counts.py
# runs: both
# what: cuts fractions off, which get_inputs() never gives
# base: pointwise.py

EXPRESSION = "tanhf(0.3f * (float)(int)v)"

class ModelNew(nn.Module):
    pass
