import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        return (x * x).sum(dim=-1)
def get_inputs():
    return [torch.rand(64, 4096)]
def get_init_inputs():
    return []
