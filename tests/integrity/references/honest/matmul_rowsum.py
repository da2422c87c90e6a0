import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inner, outer) / math.sqrt(inner))
    def forward(self, x):
        return (x @ self.weight).sum(-1)
def get_inputs():
    return [torch.randn(96, 160)]
def get_init_inputs():
    return [160, 192]
