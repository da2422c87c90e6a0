import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, k):
        super().__init__()
        self.k = k
    def forward(self, x):
        values, indices = torch.topk(x, self.k, dim=-1)
        return values, indices, x.argmin(dim=-1)
def get_inputs():
    return [torch.randn(40, 300)]
def get_init_inputs():
    return [5]
