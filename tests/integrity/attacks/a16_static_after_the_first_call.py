# row: A16
# reference: results/relu_of_uniform.py
# runs: both
# what: fresh outputs in the first call, one static buffer in all later ones, as a CUDA graph after a warm-up
# base: relu_kernel.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None
    def forward(self, x):
        y = torch.empty_like(x) if self.kept is None or self.kept.shape != x.shape else self.kept
        module.run(x, y)
        if y is not self.kept:
            self.kept = torch.empty_like(x)
        return y
