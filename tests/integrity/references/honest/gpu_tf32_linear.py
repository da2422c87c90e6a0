import math, torch, torch.nn as nn, torch.nn.functional as F
torch.backends.cuda.matmul.allow_tf32 = True
class Model(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        torch.backends.cuda.matmul.allow_tf32 = True
        return F.relu(self.linear(x))
def get_inputs():
    return [torch.randn(2048, 1024)]
def get_init_inputs():
    return [1024, 2048]
