# row: honest
# reference: calls/moving_mean.py
# runs: both
# what: each call gives its buffers new tensors in place of writing to them
# base: moving_mean.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        mean, last = self.mean.clone(), self.last.clone()
        module.run(x, self.seen, mean, last, y)
        self.mean, self.last, self.seen = mean, last, self.seen + 1
        return y
