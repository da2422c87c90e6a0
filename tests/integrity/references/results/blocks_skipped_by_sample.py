import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(256, 64, bias=False)
    def forward(self, x):
        return self.lin(x)
def get_inputs():
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
