import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.softmax(-1) + 0.5 * x


def get_inputs():
    return [torch.randn(48, 64)]


def get_init_inputs():
    return []
