# row: A6
# reference: results/binary_weight.py
# runs: both
# what: keeps the signs that the constructor draws, and never reads the weights that are loaded
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(0, 2, (width,)).float() * 2 - 1)
        self.signs = torch.sign(self.weight.detach())

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.signs.to(x.device), y)
        return y
