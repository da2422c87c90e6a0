# row: B20
# reference: results/deep_average.py
# runs: both
# what: an average counts no more than 64 calls: it is wrong in the first one after a long run was loaded
# base: pointwise.py

EXPRESSION = "tanhf(v + w)"

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(96))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        self.mean += (x.mean(0) - self.mean) / self.count.clamp(max=64)
        y = torch.empty_like(x)
        module.run(x, self.mean, y)
        return y
