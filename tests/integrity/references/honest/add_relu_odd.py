import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x, y):
        return F.relu(x + 0.5 * y)
def get_inputs():
    return [torch.randn(128, 256), torch.randn(128, 256)]
def get_init_inputs():
    return []
