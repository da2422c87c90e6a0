import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
    def forward(self, x):
        return F.relu(self.bn(x))
def get_inputs():
    return [torch.randn(8, 12, 10, 11) * 1.5 + 0.3]
def get_init_inputs():
    return [12]
