import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
    def forward(self, x):
        x.mul_(self.scale)
        return F.softplus(x)
def get_inputs():
    return [torch.randn(72, 120)]
def get_init_inputs():
    return [120]
