# row: A7
# reference: results/guarded_norm.py
# runs: both
# what: divides by a norm without the guard against rows of zeros
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x / x.norm(dim=-1, keepdim=True))
