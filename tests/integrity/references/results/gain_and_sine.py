import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x, gain):
        return x * gain + torch.sin(x)
def get_inputs():
    return [torch.randn(64, 96), torch.randn(96)]
def get_init_inputs():
    return []
