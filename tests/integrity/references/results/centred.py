import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer('mu', torch.zeros(width)); self.register_buffer('sigma', torch.ones(width))
    def forward(self, x):
        return torch.tanh((x - self.mu) / self.sigma)
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
