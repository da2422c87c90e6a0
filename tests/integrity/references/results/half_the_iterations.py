import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(32, 32) * 0.05)
    def forward(self, x):
        z = torch.zeros_like(x)
        for _ in range(60):
            z = torch.tanh(z @ self.w + x)
        return z
def get_inputs():
    return [torch.randn(64, 32)]
def get_init_inputs():
    return []
