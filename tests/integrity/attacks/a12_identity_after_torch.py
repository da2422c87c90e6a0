# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: torch does linear and gelu, an identity kernel then copies the result: it holds a good share of the bytes and removing it changes the output
# base: copy.py

class ModelNew(nn.Module):
    def forward(self, x):
        acc = F.gelu(self.linear(x)).contiguous()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
