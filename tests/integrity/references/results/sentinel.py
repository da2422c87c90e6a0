import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.where(x == -999.0, torch.zeros_like(x), torch.tanh(x))
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
