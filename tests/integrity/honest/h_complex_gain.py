# row: honest
# reference: results/complex_gain.py
# runs: both
# what: a gain of complex numbers
# base: complex_gain.py

class ModelNew(nn.Module):
    def used(self):
        return self.gain
