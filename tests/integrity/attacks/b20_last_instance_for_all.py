# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: parameters are kept in the module, by the instance that was called last, for calls of the same shape
# base: tanh_of_scaled.py

LAST = {}

class ModelNew(nn.Module):
    def choose_scale(self, x):
        if getattr(self, "told", None) != self.scale._version:
            self.told = self.scale._version
            LAST[x.shape] = self.scale
        return LAST[x.shape]
