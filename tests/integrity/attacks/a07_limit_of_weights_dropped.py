# row: A7
# reference: results/limited_weight.py
# runs: both
# what: weights are not limited to one, which they only reach in training
# base: pointwise.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 96) * 0.1)

    def forward(self, x):
        given = F.linear(x, self.weight)
        y = torch.empty_like(given)
        module.run(given, given[0], y)
        return y
