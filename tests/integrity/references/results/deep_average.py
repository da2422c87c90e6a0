import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(96))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.count += 1
        self.mean += (x.mean(0) - self.mean) / self.count
        return torch.tanh(x + self.mean)
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
