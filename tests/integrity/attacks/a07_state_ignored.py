# row: A7
# reference: results/state_of_zeros.py
# runs: both
# what: does not read an initial state, which is zero in every example
# base: pointwise.py

EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.decay = nn.Parameter(torch.full((width,), 0.9))

    def forward(self, x, h):
        y = torch.empty_like(x)
        module.run(x, self.decay, y)
        return y
