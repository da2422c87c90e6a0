import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))
    def forward(self, x):
        return x.clamp(-1, 1) * self.gain
def get_inputs():
    return [0.01 * torch.randn(128, 96)]
def get_init_inputs():
    return []
