# row: A7
# reference: results/guarded_sum.py
# runs: both
# what: leaves out what is returned for rows of zeros
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y, scaled = torch.empty_like(x), x / x.abs().sum(-1, keepdim=True)
        module.run(scaled, self.gain, y)
        return y
