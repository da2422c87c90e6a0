# row: A6
# reference: results/gain_and_sine.py
# runs: both
# what: values beyond 400 count as 400
# base: pointwise.py

EXPRESSION = "fminf(fmaxf(v, -400.f), 400.f) * w + sinf(v)"

class ModelNew(nn.Module):
    def forward(self, x, gain):
        y = torch.empty_like(x)
        module.run(x, gain, y)
        return y
