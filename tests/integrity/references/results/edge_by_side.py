import torch, torch.nn as nn, torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(17))
    def forward(self, x, edges):
        return self.table[torch.bucketize(x, edges)]
def get_inputs():
    return [torch.randn(64, 64), torch.sort(torch.randn(16)).values]
def get_init_inputs():
    return []
