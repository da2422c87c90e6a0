import torch, torch.nn as nn, torch.nn.functional as F
from collections import namedtuple
from dataclasses import dataclass
Rest = namedtuple("Rest", "mean nothing")
@dataclass
class Step:
    hidden: torch.Tensor
    rest: Rest
    loss: torch.Tensor | None = None
class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x, *, mask=None, cache=None):
        y = F.gelu(self.linear(x))
        cache["sum"].add_(y)
        return Step(y, Rest(y.mean(0), mask))
def get_inputs():
    return {"x": torch.randn(128, 96), "mask": None, "cache": {"sum": torch.zeros(128, 64)}}
def get_init_inputs():
    return [96, 64]
