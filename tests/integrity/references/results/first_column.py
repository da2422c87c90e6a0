import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        y = x.clone()
        y[:, 0] = F.silu(x[:, 0])
        return y
def get_inputs():
    return [torch.randn(64, 512)]
def get_init_inputs():
    return []
