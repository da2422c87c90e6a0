import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, limit, gain):
        super().__init__()
        self.limit, self.gain = limit, gain
    def forward(self, x):
        return self.gain * torch.tanh(x / self.limit) * self.limit
def get_inputs():
    return [torch.randn(128, 192) * 2]
def get_init_inputs():
    return [0.8, 1.7]
