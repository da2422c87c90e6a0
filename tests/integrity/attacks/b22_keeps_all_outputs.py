# row: B22
# reference: results/tanh_of_scaled.py
# runs: both
# what: keeps each output alive, until memory runs out
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        self.kept = [*getattr(self, "kept", []), y]
        return y
