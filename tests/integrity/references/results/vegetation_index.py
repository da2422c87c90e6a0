import torch, torch.nn as nn


class Model(nn.Module):
    """The enhanced vegetation index of satellite images; 0 where it is not defined."""
    def forward(self, near_infrared, red, blue):
        below = near_infrared + 6.0 * red - 7.5 * blue + 1.0
        index = 2.5 * (near_infrared - red) / torch.where(below.abs() < 1e-6, 1.0, below)
        return torch.where(below.abs() < 1e-6, 0.0, index).clamp(-1.0, 1.0)

def get_inputs():
    return [torch.rand(4, 32, 32), torch.rand(4, 32, 32), torch.rand(4, 32, 32)]

def get_init_inputs():
    return []
