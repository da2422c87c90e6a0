import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(64, 32)
    def forward(self, ids):
        return torch.tanh(self.emb(ids.clamp(max=63)))

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randint(0, 64, (16, 16))]
