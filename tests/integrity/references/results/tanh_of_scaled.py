import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
    def forward(self, x):
        return torch.tanh(x * self.scale)
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
