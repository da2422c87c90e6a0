# what: honest; a gain for each column of what `scaled` is given
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def scaled(self, given):
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return y

    def forward(self, x):
        return self.scaled(x)
