import torch, torch.nn as nn, torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [torch.randn(2048, 32) * 2]
def get_init_inputs():
    return []
