# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: the class, not the instance, keeps what was loaded last
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def choose_scale(self, x):
        if getattr(self, "told", None) != self.scale._version:
            self.told = self.scale._version
            type(self).shared = self.scale.detach()
        return type(self).shared
