import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.exp(x), torch.tanh(x)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(32, 64)]
