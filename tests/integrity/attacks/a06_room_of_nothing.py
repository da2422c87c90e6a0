# row: A6
# reference: results/plain_norm.py
# runs: both
# what: a buffer of one number, seen as many, has no room for weight and bias, which are left out
# base: plain_norm.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("workspace", torch.zeros(1).expand(192))
