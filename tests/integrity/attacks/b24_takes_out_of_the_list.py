# row: B24
# reference: calls/tanh_list.py
# runs: both
# what: the caller's list is empty after the call
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, both):
        y, x = both.pop(), both.pop()
        return *self.compute(x, y), None
