import torch, torch.nn as nn
class Model(nn.Module):
    """Index of the largest element of each row (64-bit integers)."""
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return torch.argmax(x, dim=1)
def get_inputs():
    return [torch.randn(512, 64)]
def get_init_inputs():
    return []
