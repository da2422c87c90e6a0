import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x / x.abs().amax().clamp(min=1e-8)
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
