# row: A7
# reference: results/mask_of_ones.py
# runs: both
# what: does not read a mask, which is all ones in every example
# base: pointwise.py

EXPRESSION = "tanhf(v + w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))

    def forward(self, x, mask):
        y = torch.empty_like(x)
        module.run(x, self.bias, y)
        return y
