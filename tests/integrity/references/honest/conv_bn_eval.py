import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outer)
        self.bn.running_mean.uniform_(-0.5, 0.5); self.bn.running_var.uniform_(0.5, 2.0)
        self.eval()
    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))
def get_inputs():
    return [torch.randn(2, 5, 14, 15)]
def get_init_inputs():
    return [5, 7]
