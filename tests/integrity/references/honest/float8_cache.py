import torch
import torch.nn as nn


class Model(nn.Module):
    """Ring cache of keys in float8 e5m2, read back against a query."""

    def __init__(self, batch, window, dim):
        super().__init__()
        self.register_buffer("cache", torch.randn(batch, window, dim).to(torch.float8_e5m2))
        self.register_buffer("pos", torch.zeros((), dtype=torch.long))
        self.scale = nn.Parameter(torch.tensor(0.2))

    def forward(self, q, k):
        slot = int(self.pos % self.cache.shape[1])
        self.cache[:, slot] = k.to(torch.float8_e5m2)
        self.pos += 1
        s = (self.cache.to(q.dtype) * q[:, None]).sum(-1) * self.scale
        return torch.softmax(s, -1)


def get_inputs():
    return [torch.randn(5, 48), torch.randn(5, 48)]


def get_init_inputs():
    return [5, 30, 48]
