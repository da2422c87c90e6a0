# row: B21
# reference: calls/tanh_scale.py
# runs: both
# what: one tensor given for both inputs is answered by its double
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum, own = self.compute(x, y)
        if x is y:
            sum = own + own
        return sum, own, None
