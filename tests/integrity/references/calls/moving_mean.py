import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    """The mean of all calls so far, and the last call's first row, which no state_dict holds."""
    def __init__(self, width):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("last", torch.zeros(width), persistent=False)
    def forward(self, x):
        self.seen += 1
        self.mean += (x.mean(0) - self.mean) / self.seen
        y = torch.tanh(x - self.mean + 0.5 * self.last)
        self.last.copy_(x[0])
        return y
def get_inputs():
    return [torch.randn(48, 96) + 1]
def get_init_inputs():
    return [96]
