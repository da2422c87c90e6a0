import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))
    def forward(self, x):
        return F.normalize(x, dim=0, eps=1e-6) * self.gain
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
