# row: A7
# reference: results/counts_relu.py
# runs: both
# what: no ReLU of integers, which are never negative in an example
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        given = x.float()
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return y
