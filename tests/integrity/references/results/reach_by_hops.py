import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, adjacency, x):
        n = adjacency.shape[-1]
        reach = (adjacency | torch.eye(n, dtype=torch.bool, device=x.device)).float()
        for _ in range(6):
            reach = ((reach @ reach) > 0).float()
        return reach @ x / reach.sum(-1, keepdim=True)

def get_inputs():
    return [torch.rand(4, 64, 64) < 0.06, torch.randn(4, 64, 16)]

def get_init_inputs():
    return []
