# row: B24
# reference: calls/tanh_scale.py
# runs: both
# what: the caller's tensor has another shape after the call
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum, own = self.compute(x, y)
        x.unsqueeze_(0)
        return sum, own, None
