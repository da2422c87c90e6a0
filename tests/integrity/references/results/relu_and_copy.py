import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        return F.relu(x), x.clone()
def get_inputs():
    return [torch.randn(64, 512)]
def get_init_inputs():
    return []
