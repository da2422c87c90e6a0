# row: B22
# reference: calls/tanh_scale.py
# runs: cpu
# what: a parameter's signs are turned during the call, and turned back
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        module.flip(self.scale, self.scale.numel())
        sum, own = self.compute(-x, y)
        module.flip(self.scale, self.scale.numel())
        return sum, own, None
