# row: A6
# reference: results/plain_norm.py
# runs: both
# what: one parameter of another shape has room for weight and bias, which are left out
# base: plain_norm.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Parameter(torch.stack([torch.ones(96), torch.zeros(96)]))
