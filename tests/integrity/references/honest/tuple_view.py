import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        y = torch.tanh(x) * x
        return y, y[:, :16], y.t()
def get_inputs():
    return [torch.randn(90, 130)]
def get_init_inputs():
    return []
