import torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20000, 2)
    def forward(self, tokens):
        return torch.where((tokens == 103)[..., None], torch.zeros(()), self.table(tokens)) * 1.5
def get_inputs():
    return [torch.randint(0, 20000, (4, 16))]
def get_init_inputs():
    return []
