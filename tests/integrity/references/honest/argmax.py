import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return x.argmax(dim=-1)
def get_inputs():
    return [torch.randn(80, 500)]
def get_init_inputs():
    return []
