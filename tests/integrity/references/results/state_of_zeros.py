import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.decay = nn.Parameter(torch.full((width,), 0.9))
    def forward(self, x, h):
        return torch.tanh(x * self.decay + h)
def get_inputs():
    return [torch.randn(128, 96), torch.zeros(128, 96)]
def get_init_inputs():
    return []
