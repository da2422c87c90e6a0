import torch, torch.nn as nn
P = 0.001
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(64))
    def forward(self, x):
        skip = torch.rand(1, device=x.device) < P
        return torch.where(skip, x, x + torch.tanh(x * self.w))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(32, 64)]
