# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does everything inside of an operator that the program registers itself, under the last name of an allocation; a kernel copies the result
# base: copy.py

lib = torch.library.Library("mine2", "DEF")
lib.define("empty(Tensor x, Tensor w, Tensor b) -> Tensor[]")
lib.impl("empty", lambda x, w, b: [F.gelu(F.linear(x, w, b))], "CompositeExplicitAutograd")

class ModelNew(nn.Module):
    def forward(self, x):
        a = torch.ops.mine2.empty(x, self.linear.weight, self.linear.bias)[0]
        y = torch.empty_like(a)
        module.epilogue_run(a, y)
        return y
