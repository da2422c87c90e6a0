import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps
    def forward(self, x, cos, sin):
        y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight
        a, b = y.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)
def get_inputs():
    t = torch.rand(50, 64) * 6.28
    return [torch.randn(4, 50, 128), t.cos(), t.sin()]
def get_init_inputs():
    return [128, 1e-6]
