# row: A6
# reference: results/copied_sign.py
# runs: both
# what: takes the sign of -0 for that of 0
# base: pointwise.py

EXPRESSION = "(w < 0.f ? -fabsf(v) : fabsf(v)) * 2.f"

class ModelNew(nn.Module):
    def forward(self, x, z):
        y = torch.empty_like(x)
        module.run(x, z, y)
        return y
