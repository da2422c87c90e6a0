import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins
    def forward(self, index, x):
        return torch.zeros(self.bins, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, index, x)
def get_inputs():
    return [torch.randint(0, 37, (600,)), torch.randn(600, 24)]
def get_init_inputs():
    return [37]
