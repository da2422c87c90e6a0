import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.weight = nn.Parameter(torch.randint(0, 2, (width,)).float() * 2 - 1)
    def forward(self, x):
        return x * torch.sign(self.weight)
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
