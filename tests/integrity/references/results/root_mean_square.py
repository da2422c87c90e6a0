import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))
    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-10) * self.gain
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
