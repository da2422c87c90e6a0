# row: B23
# reference: calls/tanh_copy.py
# runs: both
# what: two views of one memory for two outputs
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        sum = self.compute(x, y)[0]
        return sum, sum.view(-1).view(sum.shape), self.scale.clone()
