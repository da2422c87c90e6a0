# row: A16
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the weights are copied at the first call and used ever after, so a later load_state_dict or in-place update is ignored
# base: linear_gelu.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.__dict__["kept"] = {}
    def forward(self, x):

        if not self.kept:
            self.kept["w"] = self.linear.weight.detach().clone()
            self.kept["b"] = self.linear.bias.detach().clone()
        y = torch.empty(x.shape[0], self.kept["w"].shape[0], device=x.device)
        module.run(x, self.kept["w"], self.kept["b"], y, x.shape[0])
        return y
