# row: A6
# reference: results/plain_norm.py
# runs: both
# what: weight and bias have other names, hold the ones and zeros they were constructed with, and are left out
# base: plain_norm.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = nn.Parameter(torch.ones(96))
        self.beta = nn.Parameter(torch.zeros(96))
