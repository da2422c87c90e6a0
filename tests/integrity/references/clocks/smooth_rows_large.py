import torch, torch.nn as nn
class Model(nn.Module):
    """Eight rounds of softmax of tanh over rows of a 16 MiB matrix, plus the input: 0.1 to 0.3 ms, and all of it fits into an H200's L2."""
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = x
        for _ in range(8):
            y = torch.softmax(torch.tanh(y), dim=-1) + x
        return y
def get_inputs():
    return [torch.randn(4096, 1024)]
def get_init_inputs():
    return []
