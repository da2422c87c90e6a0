import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
        return (x - low) / (high - low + 1e-8)
def get_inputs():
    return [torch.randn(96, 80)]
def get_init_inputs():
    return []
