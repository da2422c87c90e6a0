import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.BatchNorm1d(d); self.scale = nn.Parameter(torch.randn(d))
    def forward(self, x): return torch.tanh(self.norm(x) * self.scale)
def get_inputs(): return [torch.randn(64, 48)]
def get_init_inputs(): return [48]
