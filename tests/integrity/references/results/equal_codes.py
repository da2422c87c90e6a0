import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(64, 16))

    def forward(self, x):
        distance = (x[:, None] - self.codes).square().sum(-1)
        nearest = distance.argmin(1)
        return nearest, torch.bincount(nearest, minlength=64).float()

def get_inputs():
    return [torch.randn(256, 16)]

def get_init_inputs():
    return []
