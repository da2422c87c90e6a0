import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return F.elu(x).permute(0, 2, 1), x[..., ::2] * 2
def get_inputs():
    return [torch.randn(6, 40, 50)]
def get_init_inputs():
    return []
