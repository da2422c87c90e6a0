# row: honest
# reference: honest/qkv_gate.py
# runs: both
# what: holds weight and bias of the norm as two rows of one parameter, and q, k and v as one matrix with its biases in the last column
# base: qkv_gate.py

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        norm, parts = nn.LayerNorm(width), [nn.Linear(width, width) for _ in range(3)]
        self.affine = nn.Parameter(torch.stack([norm.weight.detach(), norm.bias.detach()]))
        rows = [torch.cat([part.weight.detach(), part.bias.detach()[:, None]], dim=1) for part in parts]
        self.qkv = nn.Parameter(torch.cat(rows))

    def forward(self, x):
        y, out = torch.empty_like(x), torch.empty_like(x)
        module.run_norm(x, self.affine[0], self.affine[1], y)
        module.run_gate(F.linear(y, self.qkv[:, :-1], self.qkv[:, -1]), out)
        return out
