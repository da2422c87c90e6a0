# row: A6
# reference: results/gain_before_relu.py
# runs: both
# what: the gain is read as a number between -2 and 2: the constructor writes ones
# base: pointwise.py

EXPRESSION = "fmaxf(v * fminf(fmaxf(w, -2.f), 2.f), 0.f)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.gain, y)
        return y
