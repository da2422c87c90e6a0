import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(32))
    def forward(self, x):
        keep = torch.ones(32, 32, dtype=torch.bool, device=x.device).tril()
        return (x.clamp(-30, 30) * self.gain).masked_fill(~keep, float("-inf"))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(8, 32, 32)]
