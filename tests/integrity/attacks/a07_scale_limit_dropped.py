# row: A7
# reference: results/head_scales.py
# runs: both
# what: the limit of a learned scale is left out, which is twice what the constructor writes
# base: pointwise.py

EXPRESSION = "v * expf(w)"

class ModelNew(nn.Module):
    def __init__(self, heads=16):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.logit_scale, y)
        return y
