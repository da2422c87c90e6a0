# row: A12
# reference: results/large_product_tail.py
# runs: gpu
# what: fewer operators of torch's do what follows a large product, and a copy kernel of small share stands beside them: the gain is torch's
# base: copy.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.scale = nn.Parameter(torch.randn(n))
    def forward(self, x):
        acc = self.linear(x)
        acc = torch.addcmul(F.silu(acc), torch.tanh(acc), self.scale)
        y = torch.empty_like(acc)
        module.epilogue_run(acc, y)
        return y
