import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)
def get_inputs():
    return [0.1 * torch.randn(96, 80)]
def get_init_inputs():
    return []
