import torch, torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))
        self.register_buffer("loc", torch.zeros(32))
    def forward(self, x):
        self.loc.copy_(torch.where(self.ready, self.loc, x.mean(0)))
        self.ready.fill_(True)
        return torch.tanh(x - self.loc)
def get_inputs():
    return [torch.randn(64, 32)]
def get_init_inputs():
    return []
