import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width))
        self.b = nn.Parameter(torch.randn(width))
    def forward(self, x, y):
        return torch.sigmoid(x + self.a) * y + torch.exp(-(y - self.b).abs()) * x
def get_inputs():
    return [torch.randn(100, 140), torch.randn(100, 140)]
def get_init_inputs():
    return [140]
