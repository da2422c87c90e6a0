# row: A7
# reference: results/over_lengths.py
# runs: both
# what: divides by lengths without the guard against one of 0
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x, lengths):
        return self.scaled(x / lengths[:, None])
