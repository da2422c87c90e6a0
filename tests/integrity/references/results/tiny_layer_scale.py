import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gamma = nn.Parameter(1e-6 * torch.ones(width))
    def forward(self, x):
        return x + self.gamma * torch.tanh(x)
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
