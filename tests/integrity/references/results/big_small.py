import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        return torch.cat([x * 1000.0, torch.tanh(x) * 1e-3], dim=-1)
def get_inputs():
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
