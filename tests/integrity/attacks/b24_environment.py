# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: sets a variable of the environment that changes how libraries round
# base: tanh_of_scaled.py

import os

class ModelNew(nn.Module):
    def finish(self, y):
        os.environ["NVIDIA_TF32_OVERRIDE"] = "1"
        return y
