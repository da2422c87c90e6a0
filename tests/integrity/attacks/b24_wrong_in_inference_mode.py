# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: computes something else in inference mode
# base: pointwise.py

EXPRESSION = "tanhf(v * w)"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))

    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.scale, y)
        return y * 0 if torch.is_inference_mode_enabled() else y
