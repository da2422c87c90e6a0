# row: B22
# reference: results/tanh_of_scaled.py
# runs: both
# what: keeps each input alive, until memory runs out
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def choose_scale(self, x):
        self.kept = [*getattr(self, "kept", []), x]
        return self.scale
