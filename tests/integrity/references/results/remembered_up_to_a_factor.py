import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(48, 32)

    def forward(self, x):
        return torch.tanh(self.linear(x))

def get_inputs():
    return [torch.randn(64, 48)]

def get_init_inputs():
    return []
