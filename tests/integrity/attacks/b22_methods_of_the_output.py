# row: B22
# reference: results/relu_of_uniform.py
# runs: both
# what: the output's methods give other values than its memory holds
# base: relu_kernel.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        y.cpu = lambda: torch.zeros(x.shape)
        return y
