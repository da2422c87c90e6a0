# row: B20
# reference: results/tanh_of_scaled.py
# runs: both
# what: every instance computes with the parameters of the first one
# base: pointwise.py

FIRST = []
EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.empty_like(x)
        FIRST[len(FIRST):] = [] if FIRST else [self]
        scale = FIRST[0].scale
        module.run(x, scale, y)
        return y
