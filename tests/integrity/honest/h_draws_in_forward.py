# row: honest
# reference: results/noisy_layer.py
# runs: both
# what: draws the random numbers that the reference draws in forward, before its own kernel runs
# base: linear_gelu.py

class ModelNew(nn.Module):
    def forward(self, x):
        noise = torch.randn(x.shape[0], 64, device=x.device)
        y = torch.empty(x.shape[0], 64, device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y, x.shape[0])
        return noise.add_(y)
