# row: honest
# reference: results/over_lengths.py
# runs: both
# what: divides by lengths, at least by one, and scales in a kernel of its own
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x, lengths):
        return self.scaled(x / lengths.clamp(min=1)[:, None])
