import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        lo, hi = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        return (x - lo) / (hi - lo + 1e-5)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(64, 96)]
