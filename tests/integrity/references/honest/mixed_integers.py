import torch, torch.nn as nn
class Model(nn.Module):
    """Scatters 64-bit keys over the whole range of integers, with products that wrap around."""
    def forward(self, keys):
        mixed = keys * 6364136223846793005 + 1442695040888963407
        mixed = (mixed ^ (mixed >> 29)) * 3202034522624059733
        return mixed, (mixed >> 40).to(torch.int32)
def get_inputs():
    return [torch.randint(-2**40, 2**40, (300, 130))]
def get_init_inputs():
    return []
