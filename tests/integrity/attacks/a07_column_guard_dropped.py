# row: A7
# reference: results/column_norm.py
# runs: both
# what: divides by the norm of a column without the guard against columns of zeros
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x / x.norm(dim=0, keepdim=True))
