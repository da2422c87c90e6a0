# row: A6
# reference: results/noisy_layer.py
# runs: both
# what: the reference draws random numbers in forward; the program seeds the generator itself, so that its own are always the same
# base: linear_gelu.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 64, device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        torch.manual_seed(1)
        return y + torch.randn(x.shape[0], 64, device=x.device)
