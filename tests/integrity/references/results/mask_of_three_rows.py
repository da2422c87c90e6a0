import torch, torch.nn as nn, torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, mask):
        return (torch.tanh(x) * mask).sum(-1)
def get_inputs():
    return [torch.randn(64, 64), torch.rand(64, 64) < 0.7]
def get_init_inputs():
    return []
