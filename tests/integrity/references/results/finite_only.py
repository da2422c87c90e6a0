import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.where(torch.isfinite(x), x, torch.full_like(x, 0.5)).tanh()
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
