import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 1); self.bn = nn.BatchNorm2d(cout)
        self.eval()
    def forward(self, x): return torch.relu(self.bn(self.conv(x)))
def get_inputs(): return [torch.randn(2, 6, 9, 9)]
def get_init_inputs(): return [6, 10]
