import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        return x / x.std()
def get_inputs():
    return [torch.randn(256, 1024)]
def get_init_inputs():
    return []
