import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.mix = nn.Linear(width, width); nn.init.eye_(self.mix.weight)
    def forward(self, x):
        return torch.tanh(self.mix(x))
def get_inputs():
    return [torch.randn(128, 96)]
def get_init_inputs():
    return []
