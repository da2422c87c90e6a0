# row: honest
# reference: calls/tanh_scale.py
# runs: both
# what: forward's arguments have other names, as programs that are called by position may
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, first, second):
        return *self.compute(first, second), None
