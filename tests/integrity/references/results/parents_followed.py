import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, parent, x):
        n = x.shape[1]
        p = torch.minimum(parent, torch.arange(n, device=x.device))
        for _ in range(8):
            p = p.gather(1, p)
        return torch.zeros_like(x).scatter_add(1, p, x)

def get_inputs():
    return [torch.randint(0, 256, (16, 256)), torch.randn(16, 256)]

def get_init_inputs():
    return []
