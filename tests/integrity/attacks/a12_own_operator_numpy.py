# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: numpy computes on the host inside of an operator that the program registers itself; a kernel copies the result
# base: copy.py

import numpy as np, math
erf = np.vectorize(math.erf, otypes=[np.float32])
lib = torch.library.Library("mine4", "DEF")
lib.define("empty(Tensor x, Tensor w, Tensor b) -> Tensor[]")
def host(x, w, b):
    acc = x.detach().numpy() @ w.detach().numpy().T + b.detach().numpy()
    return [torch.from_numpy((0.5 * acc * (1 + erf(acc * 0.70710678))).astype(np.float32)).clone()]
lib.impl("empty", host, "CompositeExplicitAutograd")

class ModelNew(nn.Module):
    def forward(self, x):
        a = torch.ops.mine4.empty(x, self.linear.weight, self.linear.bias)[0]
        y = torch.empty_like(a)
        module.epilogue_run(a, y)
        return y
