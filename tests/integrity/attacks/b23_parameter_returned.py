# row: B23
# reference: calls/tanh_copy.py
# runs: both
# what: an output is the parameter itself
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum = self.compute(x, y)[0]
        return sum, sum.clone(), self.scale.detach()
