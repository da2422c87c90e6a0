import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def forward(self, x):
        return F.relu(x).view(x.shape[0], -1, 4).prod(-1)
def get_inputs():
    return [torch.rand(128, 96)]
def get_init_inputs():
    return []
