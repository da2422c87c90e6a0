# row: A7
# reference: results/labels.py
# runs: both
# what: counts also what is labelled as to be ignored
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x, labels):
        return -F.log_softmax(self.scaled(x), -1).gather(1, labels.clamp(min=0)[:, None])[:, 0]
