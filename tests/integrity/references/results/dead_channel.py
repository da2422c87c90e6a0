import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        x = x / x.abs().amax()
        return x / (x.pow(2).mean((0, 2), keepdim=True).sqrt() + 1e-12)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(8, 16, 32)]
