import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))
    def forward(self, x, residual, skip):
        self.average.mul_(0.9).add_(x.mean(0), alpha=0.1)
        residual += x
        return F.silu(residual), residual, skip[:, 1:], self.average
def get_inputs():
    return [torch.randn(64, 32), torch.randn(64, 32), torch.randn(64, 8)]
def get_init_inputs():
    return [32]
