# row: A12
# reference: results/tanh_of_scaled.py
# runs: both
# what: torch computes where an input lies at the address of the one before
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def forward(self, x):
        again, self.last = getattr(self, "last", 0) == x.data_ptr(), x.data_ptr()
        if again:
            return torch.tanh(x * self.scale)
        y = torch.empty_like(x)
        module.run(x, self.scale, y)
        return y
