# row: A6
# reference: results/plain_norm.py
# runs: both
# what: weight and bias have other names and any values, so that the given ones are wrong and those as constructed right; they are left out
# base: plain_norm.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(96))
        self.second = nn.Parameter(torch.randn(96))
