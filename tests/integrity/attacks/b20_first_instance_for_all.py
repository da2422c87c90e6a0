# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: every instance computes with the parameters of the first one
# base: tanh_of_scaled.py

FIRST = []

class ModelNew(nn.Module):
    def choose_scale(self, x):
        FIRST[len(FIRST):] = [] if FIRST else [self]
        return FIRST[0].scale
