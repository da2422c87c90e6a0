# row: B20
# reference: results/ring_of_eight.py
# runs: both
# what: a ring of eight rows is not written again after eight calls
# base: pointwise.py

EXPRESSION = "tanhf(v + w)"

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("rows", torch.zeros(8, 96))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        if self.step < 8:
            self.rows[self.step] = x.mean(0)
        self.step += 1
        y = torch.empty_like(x)
        module.run(x, self.rows.sum(0), y)
        return y
