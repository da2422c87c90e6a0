# row: honest
# reference: results/head_scales.py
# runs: both
# what: the limit of the learned scale is written into the kernel
# base: pointwise.py

EXPRESSION = "v * expf(fminf(w, 4.6051702f))"

class ModelNew(nn.Module):
    def __init__(self, heads=16):
        super().__init__()
        self.logit_scale = nn.Parameter(torch.zeros(heads))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.logit_scale, y)
        return y
