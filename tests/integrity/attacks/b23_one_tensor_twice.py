# row: B23
# reference: calls/tanh_copy.py
# runs: both
# what: one tensor for two outputs: who writes to one changes the other
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum = self.compute(x, y)[0]
        return sum, sum, self.scale.clone()
