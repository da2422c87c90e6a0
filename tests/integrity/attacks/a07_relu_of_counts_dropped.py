# row: A7
# reference: results/counts_relu.py
# runs: both
# what: no ReLU of integers, which are never negative in an example
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x.float())
