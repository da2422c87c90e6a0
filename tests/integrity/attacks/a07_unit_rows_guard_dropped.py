# row: A7
# reference: results/unit_rows.py
# runs: both
# what: divides by the norms of a weight's rows without the guard against rows of zeros
# base: pointwise.py

EXPRESSION = "v / w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, 32))

    def forward(self, x):
        products = F.linear(x, self.weight)
        y = torch.empty_like(products)
        module.run(products, self.weight.norm(dim=1), y)
        return y
