# row: B22
# reference: results/tanh_of_scaled.py
# runs: both
# what: each call opens a file and never closes it
# base: tanh_of_scaled.py

import os

class ModelNew(nn.Module):
    def finish(self, y):
        os.open(os.devnull, os.O_RDONLY)
        return y
