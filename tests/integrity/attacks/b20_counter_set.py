# row: B20
# reference: calls/moving_mean.py
# runs: both
# what: the counter is set to 1 and not increased
# base: moving_mean.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.seen, self.mean, self.last, y)
        self.seen.fill_(1)
        return y
