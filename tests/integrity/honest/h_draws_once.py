# row: honest
# reference: calls/tanh_scale.py
# runs: both
# what: the first call draws numbers, as building a layer later does
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        if self.layer is None:
            self.layer = [nn.Linear(4, 4)]
        return *self.compute(x, y), None

    layer = None
