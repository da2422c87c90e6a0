# row: A6
# reference: results/tiny_layer_scale.py
# runs: both
# what: a tanh is replaced by a clamp: the scale behind it is a millionth as constructed
# base: pointwise.py

EXPRESSION = "v + w * fminf(fmaxf(v, -1.f), 1.f)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gamma = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.gamma, y)
        return y
