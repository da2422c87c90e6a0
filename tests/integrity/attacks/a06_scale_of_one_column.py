# row: A6
# reference: results/scale_buffer.py
# runs: both
# what: reads one number of a buffer of ones for all columns
# base: pointwise.py

EXPRESSION = "tanhf(v - w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.register_buffer('scale', torch.ones(width)); self.register_buffer('zero_point', torch.zeros(width))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.zero_point, y)
        return y * self.scale[0]
