import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, counts):
        return torch.tanh(counts * 0.3)
def get_inputs():
    return [torch.randint(0, 10, (64, 96)).float()]
def get_init_inputs():
    return []
