import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, k, h, n):
        super().__init__()
        self.fc1 = nn.Linear(k, h)
        self.fc2 = nn.Linear(h, n)
    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x)))
def get_inputs():
    return [torch.randn(128, 64)]
def get_init_inputs():
    return [64, 128, 32]
