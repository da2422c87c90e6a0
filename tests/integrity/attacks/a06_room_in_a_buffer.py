# row: A6
# reference: results/plain_norm.py
# runs: both
# what: a workspace that is a buffer has room for weight and bias, which are left out
# base: plain_norm.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("workspace", torch.zeros(4, 96))
