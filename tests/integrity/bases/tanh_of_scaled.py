# what: tanh(x * scale); for cases that take the scale from elsewhere (`choose_scale`) or spoil the result (`finish`)
# base: pointwise.py

EXPRESSION = "tanhf(v * w)"


class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def choose_scale(self, x):
        return self.scale

    def finish(self, y):
        return y

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.choose_scale(x), y)
        return self.finish(y)
