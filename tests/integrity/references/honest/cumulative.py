import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1)
def get_inputs():
    return [torch.randn(48, 300)]
def get_init_inputs():
    return []
