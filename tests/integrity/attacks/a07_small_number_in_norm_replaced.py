# row: A7
# reference: results/root_mean_square.py
# runs: both
# what: guards a norm against zeros only, where the reference adds 1e-10
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x):
        given = x * torch.rsqrt(x.square().mean(-1, keepdim=True).clamp(min=1e-20))
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return y
