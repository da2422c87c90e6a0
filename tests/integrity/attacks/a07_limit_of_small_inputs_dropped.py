# row: A7
# reference: results/limited_small.py
# runs: both
# what: no limit at 1, where inputs are about 0.01
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        given = x
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return y
