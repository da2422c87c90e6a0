import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.where(x > 0.1, x + 2, x * 0.5)
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
