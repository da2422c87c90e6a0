import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(128) + 0.5)

    def forward(self, spectrum):
        return torch.angle(spectrum) * self.weight

def get_inputs():
    return [torch.randn(32, 128, dtype=torch.complex64)]

def get_init_inputs():
    return []
