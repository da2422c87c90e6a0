import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, unbiased=False)
        return {"normal": (x - mean[:, None]) * torch.rsqrt(var[:, None] + 1e-5), "mean": mean, "var": var}
def get_inputs():
    return [torch.randn(60, 220) * 2 + 0.5]
def get_init_inputs():
    return []
