# row: A7
# reference: results/guarded_sum.py
# runs: both
# what: leaves out what is returned for rows of zeros
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x / x.abs().sum(-1, keepdim=True))
