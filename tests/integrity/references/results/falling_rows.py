import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, temperatures):
        n = temperatures.shape[1]
        warmer = temperatures[:, None, :] > temperatures[:, :, None]
        warmer = warmer & torch.ones(n, n, dtype=torch.bool, device=temperatures.device).triu(1)
        first = warmer.int().argmax(-1)
        return torch.where(warmer.any(-1), temperatures.gather(1, first) - temperatures, 0.0)

def get_inputs():
    return [torch.randn(32, 192)]

def get_init_inputs():
    return []
