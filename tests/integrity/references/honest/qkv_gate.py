import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q = nn.Linear(width, width); self.k = nn.Linear(width, width); self.v = nn.Linear(width, width)
    def forward(self, x):
        x = self.norm(x)
        return self.q(x) * torch.sigmoid(self.k(x)) + self.v(x)
def get_inputs(): return [torch.randn(40, 48)]
def get_init_inputs(): return [48]
