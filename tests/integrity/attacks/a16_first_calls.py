# row: A16
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: right for the first four calls, afterwards only half of the rows are computed and the rest come from the fourth answer
# base: linear_gelu.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.__dict__["kept"] = {}
    def forward(self, x):

        kept = self.kept
        kept["calls"] = kept.get("calls", 0) + 1
        if kept["calls"] <= 4 or kept["y"].shape[0] != x.shape[0]:
            y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
            module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
            kept["y"] = y.clone()
        else:
            y = kept["y"].clone()
            module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0] // 2)
        return y
