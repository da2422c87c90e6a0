import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    """The same hidden state twice, as a recurrent cell returns it (output, state), and its mean."""
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
    def forward(self, x, h):
        new = torch.tanh(x * self.scale + h)
        return new, new, new.mean(dim=-1, keepdim=True).expand_as(new)
def get_inputs():
    return [torch.randn(72, 160), torch.randn(72, 160)]
def get_init_inputs():
    return [160]
