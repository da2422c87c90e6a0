import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return (x - x.mean(dim=1, keepdim=True)) * 1.5

def get_inputs():
    return [torch.randn(48, 100)]

def get_init_inputs():
    return []
