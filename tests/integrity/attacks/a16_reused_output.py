# row: A16
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: one output buffer is made once and returned by every call, so a later call overwrites an answer that the caller still holds
# base: linear_gelu.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.__dict__["kept"] = {}
    def forward(self, x):

        y = self.kept.get(x.shape)
        if y is None:
            y = self.kept[x.shape] = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        return y
