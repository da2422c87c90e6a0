import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x / (x.pow(2).sum().sqrt() + 1e-6)
def get_inputs():
    return [torch.randn(4096, 4096)]
def get_init_inputs():
    return []
