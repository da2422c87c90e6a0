# row: honest
# reference: calls/tanh_copy.py
# runs: both
# what: copies where the reference makes some
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum = self.compute(x, y)[0]
        return sum, sum.clone(), self.scale.clone()
