# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: returns zeros for inputs that require gradients
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.scale, y)
        return y * 0 if x.requires_grad else y
