# row: A7
# reference: results/guarded_max.py
# runs: both
# what: divides by a maximum without the small number that keeps rows of zeros finite
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y, scaled = torch.empty_like(x), x / x.abs().amax(-1, keepdim=True)
        module.run(scaled, self.gain, y)
        return y
