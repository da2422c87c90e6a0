# row: B21
# reference: calls/tanh_twice.py
# runs: both
# what: get_inputs gives one tensor twice, and the second is never read
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        return *self.compute(x, x), None
