# row: honest
# reference: honest/qkv_gate.py
# runs: both
# what: a hook before loading joins q, k and v and renames the norm's parameters; the module holds nothing of the reference's names
# base: qkv_gate.py

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.qkv = nn.Linear(width, 3 * width)
        self.register_load_state_dict_pre_hook(ModelNew._join)

    def _join(self, state, prefix, *rest):
        if f"{prefix}q.weight" in state:
            for kind in ("weight", "bias"):
                state[f"{prefix}qkv.{kind}"] = torch.cat([state.pop(f"{prefix}{one}.{kind}") for one in "qkv"])
            state[f"{prefix}gamma"], state[f"{prefix}beta"] = state.pop(f"{prefix}norm.weight"), state.pop(f"{prefix}norm.bias")

    def forward(self, x):
        y, out = torch.empty_like(x), torch.empty_like(x)
        module.run_norm(x, self.gamma, self.beta, y)
        module.run_gate(self.qkv(y), out)
        return out
