# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: an intermediate result is two numbers longer than the memory for it
# base: pointwise.py

EXPRESSION = "v > 0.f ? v * 2.f : 0.f"
GUARD = "if (i >= n + 2) return;"

class ModelNew(nn.Module):
    def forward(self, x):
        scratch = torch.empty_like(x)
        module.run(x, x[0], scratch)
        return scratch.clone()
