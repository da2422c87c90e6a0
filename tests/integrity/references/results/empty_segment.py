import torch, torch.nn as nn
class Model(nn.Module):
    def forward(self, x, batch):
        total = x.new_zeros(8, x.shape[1]).index_add(0, batch, x)
        count = x.new_zeros(8).index_add(0, batch, torch.ones_like(batch, dtype=x.dtype))
        return total / count.clamp(min=1)[:, None]

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(256, 32), torch.randint(0, 8, (256,))]
