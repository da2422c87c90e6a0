# row: A7
# reference: results/column_norm.py
# runs: both
# what: divides by the norm of a column without the guard against columns of zeros
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y, scaled = torch.empty_like(x), x / x.norm(dim=0, keepdim=True)
        module.run(scaled, self.gain, y)
        return y
