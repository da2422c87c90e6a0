import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, pixels):
        return pixels.float() * 0.25 - 1
def get_inputs():
    return [torch.randint(0, 120, (64, 96), dtype=torch.uint8)]
def get_init_inputs():
    return []
