import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x, residual):
        return self.norm(x + residual)
def get_inputs():
    return [torch.randn(8192, 2048), torch.randn(8192, 2048)]
def get_init_inputs():
    return [2048]
