# row: B24
# reference: calls/tanh_scale.py
# runs: both
# what: a call allows TF32 for all products of the process
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        torch.backends.cuda.matmul.allow_tf32 = not torch.backends.cuda.matmul.allow_tf32
        return *self.compute(x, y), None
