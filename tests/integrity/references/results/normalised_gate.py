import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, gate, x):
        return (gate / gate.sum(-1, keepdim=True)) @ x
def get_inputs():
    return [torch.softmax(torch.randn(64, 32), -1), torch.randn(32, 96)]
def get_init_inputs():
    return []
