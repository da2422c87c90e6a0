# row: A7
# reference: results/labels.py
# runs: both
# what: counts also what is labelled as to be ignored
# base: pointwise.py

EXPRESSION = "v * w"

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(width))

    def forward(self, x, labels):
        given = x
        y = torch.empty_like(given)
        module.run(given, self.gain, y)
        return -F.log_softmax(y, -1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
