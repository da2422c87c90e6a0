import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x.clamp(-1e4, 1e4) * 3
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
