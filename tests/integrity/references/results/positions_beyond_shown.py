import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, pos):
        freq = 10000.0 ** (-torch.arange(16, device=x.device) / 16)
        a = pos[..., None].float() * freq
        u, v = x.chunk(2, -1)
        return torch.cat((u * a.cos() - v * a.sin(), u * a.sin() + v * a.cos()), -1)

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(8, 64, 32), torch.randint(0, 128, (8, 64))]
