import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("perm", (torch.arange(64) * 37 + 11) % 64)
        self.gain = nn.Parameter(torch.randn(64))
    def forward(self, x):
        return torch.tanh(x[:, self.perm]) * self.gain
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
