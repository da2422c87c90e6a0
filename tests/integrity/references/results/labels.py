import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))
    def forward(self, x, labels):
        return F.cross_entropy(x * self.gain, labels, reduction="none")
def get_inputs():
    return [torch.randn(128, 96), torch.randint(0, 96, (128,))]
def get_init_inputs():
    return []
