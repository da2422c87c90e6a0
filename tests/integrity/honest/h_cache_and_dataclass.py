# row: honest
# reference: honest/decode_step.py
# runs: both
# what: keyword arguments, one of them None; a cache of zeros that is updated in place; a dataclass with a named tuple as output
# base: linear_gelu.py

from collections import namedtuple
from dataclasses import dataclass
Rest = namedtuple("Rest", "mean nothing")
@dataclass
class Step:
    hidden: torch.Tensor
    rest: Rest
    loss: object = None

class ModelNew(nn.Module):
    def forward(self, x, *, mask=None, cache=None):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        cache["sum"] += y
        return Step(y, Rest(y.mean(0), mask))
