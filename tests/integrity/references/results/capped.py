import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.lin = nn.Linear(n, n)
        self.cap = nn.Parameter(torch.full((n,), 6.0))
    def forward(self, x):
        return torch.minimum(self.lin(x).abs(), self.cap) + x
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return [96]
