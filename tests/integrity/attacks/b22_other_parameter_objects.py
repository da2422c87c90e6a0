# row: B22
# reference: results/tanh_of_scaled.py
# runs: both
# what: each call puts another parameter in the place of the user's: an optimizer holds the old one
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        self.scale = nn.Parameter(self.scale.detach().clone())
        return y
