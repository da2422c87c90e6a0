# row: A6
# reference: results/table_of_sines.py
# runs: both
# what: computes a table of sines anew, which it holds in a buffer and never reads
# base: pointwise.py

EXPRESSION = "tanhf(v + sinf((i % width) * 0.1f)) + 0.f * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer('table', torch.sin(torch.arange(width) * 0.1))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.table, y)
        return y
