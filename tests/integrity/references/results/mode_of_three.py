import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x, mode):
        return torch.where(mode == 3, torch.tanh(x), torch.relu(x) * (mode + 1))
def get_inputs():
    return [torch.randn(64, 96), torch.randint(0, 3, (1,))]
def get_init_inputs():
    return []
