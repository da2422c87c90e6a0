# row: B20
# reference: calls/moving_mean.py
# runs: both
# what: a buffer outside of the state_dict is written while it is zero only
# base: moving_mean.py

class ModelNew(nn.Module):
    def forward(self, x):
        y, before = torch.empty_like(x), self.last.clone()
        module.run(x, self.seen, self.mean, self.last, y)
        if bool(before.any()):
            self.last.copy_(before)
        self.seen += 1
        return y
