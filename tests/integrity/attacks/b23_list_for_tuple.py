# row: B23
# reference: calls/tanh_scale.py
# runs: both
# what: a list in place of a tuple
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        return [*self.compute(x, y), None]
