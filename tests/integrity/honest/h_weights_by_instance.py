# row: honest
# reference: results/tanh_of_scaled.py
# runs: both
# what: keeps prepared parameters in the module, by instance and version
# base: tanh_of_scaled.py

import weakref

KEPT = weakref.WeakKeyDictionary()

class ModelNew(nn.Module):
    def choose_scale(self, x):
        version, scale = KEPT.get(self, (None, None))
        if version != self.scale._version:
            scale = self.scale.detach().clone()
            KEPT[self] = self.scale._version, scale
        return scale
