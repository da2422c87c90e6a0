import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x, t):
        return x.diff(dim=-1) / t.diff(dim=-1).clamp(min=1e-3)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(32, 64), (torch.rand(64) + 0.05).cumsum(-1)]
