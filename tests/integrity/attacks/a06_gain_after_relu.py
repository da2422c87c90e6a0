# row: A6
# reference: results/gain_before_relu.py
# runs: both
# what: multiplies by a gain after a ReLU in place of before it, which is the same for positive gains only
# base: pointwise.py

EXPRESSION = "fmaxf(v, 0.f) * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.gain, y)
        return y
