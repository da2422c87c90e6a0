# row: honest
# reference: results/tanh_of_scaled.py
# runs: both
# what: keeps prepared parameters in the module, by instance and version
# base: pointwise.py

import weakref

KEPT = weakref.WeakKeyDictionary()
EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.empty_like(x)
        version, scale = KEPT.get(self, (None, None))
        if version != self.scale._version:
            scale = self.scale.detach().clone()
            KEPT[self] = self.scale._version, scale
        module.run(x, scale, y)
        return y
