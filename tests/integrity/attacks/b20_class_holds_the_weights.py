# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: the class, not the instance, keeps what was loaded last
# base: pointwise.py


EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.empty_like(x)
        if getattr(self, "told", None) != self.scale._version:
            self.told = self.scale._version
            type(self).shared = self.scale.detach()
        scale = type(self).shared
        module.run(x, scale, y)
        return y
