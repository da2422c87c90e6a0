import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, width)
        self.gamma = nn.Parameter(1e-4 * torch.ones(width))
    def forward(self, x):
        return x + self.gamma * F.gelu(self.up(x))
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return [96]
