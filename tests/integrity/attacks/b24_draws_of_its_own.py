# row: B24
# reference: calls/tanh_scale.py
# runs: both
# what: each call draws random numbers that nothing needs
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        torch.rand(1, device=x.device)
        return *self.compute(x, y), None
