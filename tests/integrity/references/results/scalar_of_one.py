import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(width))
    def forward(self, x, scale):
        return torch.tanh(x + self.bias) * scale
def get_inputs():
    return [torch.randn(128, 96), torch.tensor(1.0)]
def get_init_inputs():
    return []
