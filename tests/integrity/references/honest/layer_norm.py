import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        with torch.no_grad():
            self.norm.weight.uniform_(0.5, 1.5); self.norm.bias.uniform_(-1, 1)
    def forward(self, x):
        return self.norm(x)
def get_inputs():
    return [torch.randn(64, 200) * 2 + 1]
def get_init_inputs():
    return [200]
