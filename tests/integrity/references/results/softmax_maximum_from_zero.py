import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x.softmax(-1)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(64, 96)]
