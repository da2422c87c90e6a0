import torch, torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("queue", torch.randn(256, 16))
        self.register_buffer("ptr", torch.zeros((), dtype=torch.int64))
    def forward(self, x):
        p = int(self.ptr)
        y = torch.tanh(x @ self.queue.t())
        self.queue[p : p + 4] = x
        self.ptr.copy_((self.ptr + 4) % 256)
        return y

def get_init_inputs():
    return []

def get_inputs():
    return [torch.randn(4, 16)]
