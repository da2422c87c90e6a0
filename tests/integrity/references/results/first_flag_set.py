import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x, y, flag):
        return torch.where(flag[:, None], x + 3.0 * (x - y), x)

def get_init_inputs():
    return []

def get_inputs():
    flag = torch.rand(6) < 0.5
    flag[0] = True
    return [torch.randn(6, 64), torch.randn(6, 64), flag]
