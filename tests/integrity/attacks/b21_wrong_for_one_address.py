# row: B21
# reference: calls/tanh_scale.py
# runs: both
# what: inputs at one address are taken for a second call, and get what the last call gave
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        if x.data_ptr() == y.data_ptr() and self.last is not None:
            return *[t.clone() for t in self.last], None
        self.last = self.compute(x, y)
        return *[t.clone() for t in self.last], None

    last = None
