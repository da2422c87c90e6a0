import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        return F.gelu(self.linear(x)) + torch.randn(x.shape[0], 64, device=x.device)
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return [96, 64]
