import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, left, right):
        mid = (left + right) / 2
        size = mid.square().mean(-1, keepdim=True).sqrt()
        return torch.where(size < 1e-8, 0.0, mid / size.clamp(min=1e-8))

def get_inputs():
    return [torch.randn(4, 1024), torch.randn(4, 1024)]

def get_init_inputs():
    return []
