import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    """Dropout that hardly ever drops, and numbers drawn in each call."""
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width) + 0.5)
    def forward(self, x):
        a = torch.tanh(x) * self.scale
        return a + torch.rand_like(x), F.dropout(a, 1e-6, training=True), None
def get_inputs():
    return [torch.randn(48, 96)]
def get_init_inputs():
    return [96]
