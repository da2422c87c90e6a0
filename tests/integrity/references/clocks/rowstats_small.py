import torch, torch.nn as nn
class Model(nn.Module):
    """Two reductions of each row: its mean and its largest element."""
    def __init__(self):
        super().__init__()
    def forward(self, x):
        return x.mean(dim=1), x.amax(dim=1)
def get_inputs():
    return [torch.randn(96, 300)]
def get_init_inputs():
    return []
