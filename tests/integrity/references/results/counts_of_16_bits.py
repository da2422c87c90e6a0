import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("usage", torch.zeros(16, dtype=torch.int64))
    def forward(self, x, ids):
        self.usage += torch.bincount(ids, minlength=16)
        return torch.tanh(x) / (1 + self.usage.float())
def get_inputs():
    return [torch.randn(64, 16), torch.randint(0, 16, (512,))]
def get_init_inputs():
    return []
