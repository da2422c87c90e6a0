import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x.mean(-1, keepdim=True) + torch.zeros_like(x)
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
