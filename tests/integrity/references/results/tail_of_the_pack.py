import torch, torch.nn as nn


class Model(nn.Module):
    def forward(self, x, offsets):
        at = torch.arange(x.shape[0], device=x.device)
        inside = (at < offsets[-1])[:, None]
        which = (torch.searchsorted(offsets, at, right=True) - 1).clamp(max=offsets.shape[0] - 2)
        x = x * inside
        sums = torch.zeros(offsets.shape[0] - 1, x.shape[1], device=x.device).index_add(0, which, x)
        means = sums / offsets.diff().clamp(min=1)[:, None]
        return (x - means[which]) * inside

def get_inputs():
    cuts = torch.randint(0, 513, (15,)).sort().values
    return [torch.randn(512, 32), torch.cat([torch.tensor([0]), cuts, torch.tensor([512])])]

def get_init_inputs():
    return []
