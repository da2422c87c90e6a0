# row: A15
# reference: results/tanh_of_scaled.py
# runs: both
# what: the constructor replaces what torch's linear layers compute in the whole process
# base: tanh_of_scaled.py

def half(self, x):
    return F.linear(x.bfloat16(), self.weight.bfloat16()).float()

class ModelNew(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(width))
        for kind in type(nn.Linear(1, 1)).__mro__[:1]:
            kind.forward = half
