import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, z):
        return z / z.abs().clamp(min=1e-6)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(32, 64, dtype=torch.complex64)]
