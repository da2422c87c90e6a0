import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(torch.matmul(a, b))
def get_inputs():
    return [torch.tril(torch.rand(96, 96)), torch.tril(torch.rand(96, 96))]
def get_init_inputs():
    return []
