# row: B22
# reference: calls/tanh_scale.py
# runs: cpu
# what: one row of an input holds an intermediate result in between, and gets its own back
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        row = x[5].clone()
        module.flip(x[5], x.size(1))
        kept = x[5].clone()
        module.flip(x[5], x.size(1))
        sum, own = self.compute(x, y)
        return sum, own + 0 * (kept + row), None
