import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(96, 96) * 0.1)
    def forward(self, x):
        return F.linear(x, self.weight.clamp(-1, 1))
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
