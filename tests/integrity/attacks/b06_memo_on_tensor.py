# row: B6
# reference: clocks/argmax_small.py
# runs: both
# written: independently
# what: the answer is stored as an attribute of the input tensor object and handed out again for the same object, so a refill in place is never noticed
# base: argmax.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = getattr(x, "_answer", None)
        if y is None:
            y = compute(self, x)
            x._answer = y
        return y
