import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter(torch.randn(4, 32) / 6)
        self.experts = nn.Parameter(torch.randn(4, 32, 32) / 6)
    def forward(self, x):
        p = (x @ self.router.t()).softmax(-1)
        gate, which = p.max(-1)
        return torch.stack([((which == e) * gate)[:, None] * (x @ self.experts[e]) for e in range(4)]).sum(0)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(64, 32)]
