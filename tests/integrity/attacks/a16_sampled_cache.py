# row: A16
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: answers are cached by shape and 32 sampled input values; inputs that differ elsewhere get the earlier answer, and so do changed weights
# base: linear_gelu.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.__dict__["kept"] = {}
    def forward(self, x):

        key = (tuple(x.shape), tuple(x.reshape(-1)[:: max(1, x.numel() // 32)].tolist()))
        y = self.kept.get(key)
        if y is None:
            y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
            module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
            self.kept[key] = y.clone()
            return y
        return y.clone()
