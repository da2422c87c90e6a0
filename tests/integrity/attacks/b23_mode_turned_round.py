# row: B23
# reference: results/relu_of_uniform.py
# runs: both
# what: turns its mode of training round in each call
# base: relu_kernel.py

class ModelNew(nn.Module):
    def forward(self, x):
        self.training = not self.training
        y = torch.empty_like(x)
        module.run(x, y)
        return y
