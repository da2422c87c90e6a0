# row: A6
# reference: results/zero_gate.py
# runs: both
# what: leaves out a branch behind a gate that the constructor sets to zero
# base: pointwise.py

EXPRESSION = "tanhf(v) + w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.up = nn.Linear(width, width); self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.gate, y)
        return y
