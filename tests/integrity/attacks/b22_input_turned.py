# row: B22
# reference: calls/tanh_scale.py
# runs: cpu
# what: an input's signs are turned during the call by an own kernel, and turned back
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        module.flip(y, y.numel())
        module.flip(y, y.numel())
        return *self.compute(x, y), None
