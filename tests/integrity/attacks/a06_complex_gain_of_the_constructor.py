# row: A6
# reference: results/complex_gain.py
# runs: both
# what: the complex gain is that of the constructor, whatever is loaded
# base: complex_gain.py

class ModelNew(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width, dtype=torch.cfloat))
        self.kept = self.gain.detach().clone()

    def used(self):
        return self.kept.to(self.gain.device)
