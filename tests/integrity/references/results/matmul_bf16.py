import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randn(32, 256).bfloat16(), torch.randn(256, 64).bfloat16()]
def get_init_inputs():
    return []
