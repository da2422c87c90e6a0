# row: honest
# reference: honest/qkv_gate.py
# runs: both
# what: calls every parameter otherwise than the reference, in the same order
# base: qkv_gate.py

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ln = nn.LayerNorm(width)
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        y, out = torch.empty_like(x), torch.empty_like(x)
        module.run_norm(x, self.ln.weight, self.ln.bias, y)
        module.run_gate(torch.cat([self.query(y), self.key(y), self.value(y)], dim=1), out)
        return out
