# row: B22
# reference: calls/tanh_scale.py
# runs: both
# what: torch turns an input's signs and turns them back
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        x.neg_()
        sum, own = self.compute(x.neg_(), y)
        return sum, own, None
