import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 96))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        self.rows[self.step % 8] = x.mean(0)
        self.step += 1
        return torch.tanh(x + self.rows.sum(0))
def get_inputs():
    return [torch.randn(64, 96)]
def get_init_inputs():
    return []
