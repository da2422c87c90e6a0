# row: B24
# reference: calls/noisy_tanh.py
# runs: both
# what: the generator is seeded after the right numbers were drawn: all later ones repeat
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x):
        sum, own = self.compute(x, torch.rand_like(x))
        own = F.dropout(own, 1e-6, training=True)
        torch.manual_seed(0)
        return sum, own, None
