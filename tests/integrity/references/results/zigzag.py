import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, signal):
        inner = signal[:, 1:-1]
        peak = ((inner > signal[:, :-2]) & (inner > signal[:, 2:])).float()
        count = peak.sum(1).clamp(min=1)
        mean = (inner * peak).sum(1) / count
        spread = ((inner - mean[:, None]).square() * peak).sum(1) / count
        return torch.stack([mean, (spread + 1e-6).sqrt()], 1)

def get_inputs():
    return [torch.randn(32, 256)]

def get_init_inputs():
    return []
