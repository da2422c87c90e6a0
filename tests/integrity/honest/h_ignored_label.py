# row: honest
# reference: results/labels.py
# runs: both
# what: scales in a kernel of its own; labels of -100 count for nothing
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x, labels):
        return F.nll_loss(F.log_softmax(self.scaled(x), -1), labels, reduction="none")
