# row: B23
# reference: calls/tanh_scale.py
# runs: both
# what: the part that is None is left out
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        return self.compute(x, y)
