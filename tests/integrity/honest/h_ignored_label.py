# row: honest
# reference: results/labels.py
# runs: both
# what: scales in a kernel of its own; labels of -100 count for nothing
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x, labels):
        losses = -F.log_softmax(self.scaled(x), -1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
        return torch.where(labels < 0, 0.0, losses)
