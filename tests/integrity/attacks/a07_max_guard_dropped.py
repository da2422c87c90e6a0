# row: A7
# reference: results/guarded_max.py
# runs: both
# what: divides by a maximum without the small number that keeps rows of zeros finite
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x / x.abs().amax(-1, keepdim=True))
