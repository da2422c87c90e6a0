# row: B24
# reference: calls/noisy_tanh.py
# runs: both
# what: dropout that hardly ever drops is left out
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x):
        return *self.compute(x, torch.rand_like(x)), None
