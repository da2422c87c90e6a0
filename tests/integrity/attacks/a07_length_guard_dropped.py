# row: A7
# reference: results/over_lengths.py
# runs: both
# what: divides by lengths without the guard against one of 0
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x, lengths):
        given = x / lengths[:, None]
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return y
