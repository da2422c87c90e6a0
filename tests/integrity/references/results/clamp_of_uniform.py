import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.width = width
    def forward(self, x):
        return x.clamp(0, 1).square()
def get_inputs():
    return [torch.rand(128, 96)]
def get_init_inputs():
    return []
