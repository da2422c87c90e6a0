# row: honest
# reference: calls/tanh_twice.py
# runs: both
# what: an own way for one tensor given twice, and one for two
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        if x is y:
            own = self.compute(x, torch.zeros_like(x))[1]
            return own + x, own, None
        return *self.compute(x, y), None
