import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    """A list of two tensors."""
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
    def forward(self, both):
        a = torch.tanh(both[0]) * self.scale
        return a + both[1], a, None
def get_inputs():
    return [[torch.randn(48, 96), torch.randn(48, 96)]]
def get_init_inputs():
    return [96]
