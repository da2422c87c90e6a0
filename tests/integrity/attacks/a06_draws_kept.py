# row: A6
# reference: results/noisy_layer.py
# runs: both
# what: the reference draws random numbers in forward; those of the first call are kept for all later ones
# base: linear_gelu.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 64, device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        if not hasattr(self, "noise"):
            self.noise = torch.randn(x.shape[0], 64, device=x.device)
        return y + self.noise
