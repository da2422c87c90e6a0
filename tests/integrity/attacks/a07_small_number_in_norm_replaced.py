# row: A7
# reference: results/root_mean_square.py
# runs: both
# what: guards a norm against zeros only, where the reference adds 1e-10
# base: gain.py

class ModelNew(nn.Module):
    def forward(self, x):
        return self.scaled(x * torch.rsqrt(x.square().mean(-1, keepdim=True).clamp(min=1e-20)))
