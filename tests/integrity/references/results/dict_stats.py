import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        pass
    def forward(self, x):
        mean = x.mean(dim=-1)
        var = x.var(dim=-1, unbiased=False)
        return {"mean": mean, "var": var, "normal": (x - mean[:, None]) * torch.rsqrt(var[:, None] + 1e-5)}
def get_inputs():
    return [torch.randn(64, 256)]
def get_init_inputs():
    return []
