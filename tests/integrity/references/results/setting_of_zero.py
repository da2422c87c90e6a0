import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, logits, temperature):
        return (logits / (temperature + 1e-9)).softmax(-1)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(4, 128), torch.rand(4, 1) * 0.5 + 0.5]
