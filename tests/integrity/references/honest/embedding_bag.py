import math, torch, torch.nn as nn, torch.nn.functional as F
class Model(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="mean")
    def forward(self, index):
        return self.bag(index)
def get_inputs():
    return [torch.randint(0, 500, (64, 9))]
def get_init_inputs():
    return [500, 48]
