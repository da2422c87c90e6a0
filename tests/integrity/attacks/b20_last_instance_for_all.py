# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: parameters are kept in the module, by the instance that was called last, for calls of the same shape
# base: pointwise.py

LAST = {}
EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.empty_like(x)
        if getattr(self, "told", None) != self.scale._version:
            self.told = self.scale._version
            LAST[x.shape] = self.scale
        scale = LAST[x.shape]
        module.run(x, scale, y)
        return y
