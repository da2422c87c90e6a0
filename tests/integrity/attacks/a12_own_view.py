# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does everything inside of an operator of the program's own that says it returns a view; a kernel copies the result
# base: copy.py

lib = torch.library.Library("mine3", "DEF")
lib.define("layer(Tensor(a) x, Tensor w, Tensor b) -> Tensor(a)")
lib.impl("layer", lambda x, w, b: F.gelu(F.linear(x, w, b)), "CompositeExplicitAutograd")

class ModelNew(nn.Module):
    def forward(self, x):
        a = torch.ops.mine3.layer(x, self.linear.weight, self.linear.bias)
        y = torch.empty_like(a)
        module.epilogue_run(a, y)
        return y
