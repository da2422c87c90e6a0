# row: A6
# reference: results/zero_projection.py
# runs: both
# what: leaves out a branch whose last weight the constructor sets to zero
# base: pointwise.py

EXPRESSION = "tanhf(v) + w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.up = nn.Linear(width, width); self.out = nn.Linear(width, width); nn.init.zeros_(self.out.weight); nn.init.zeros_(self.out.bias)

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.out.bias, y)
        return y
