import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(97))
    def forward(self, ids):
        return self.table[(ids * 31 + 7) % 97]

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randint(0, 1000, (64, 64))]
