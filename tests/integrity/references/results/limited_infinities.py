import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x, nan=0.25, posinf=6.0, neginf=-6.0) * 1.5
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
