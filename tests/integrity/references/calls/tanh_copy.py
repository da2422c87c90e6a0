import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    """A result, a copy of it, and the scale."""
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
    def forward(self, x, y):
        a = torch.tanh(x) * self.scale + y
        return a, a.clone(), self.scale * 1
def get_inputs():
    return [torch.randn(48, 96), torch.randn(48, 96)]
def get_init_inputs():
    return [96]
