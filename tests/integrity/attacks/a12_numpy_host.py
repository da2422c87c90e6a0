# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the product and the gelu are computed by numpy on the host (outside torch's dispatcher) and an identity kernel copies the result
# base: copy.py

import numpy as np, math
ERF = np.frompyfunc(math.erf, 1, 1)

class ModelNew(nn.Module):
    def forward(self, x):
        a = x.detach().cpu().numpy() @ self.linear.weight.detach().cpu().numpy().T + self.linear.bias.detach().cpu().numpy()
        acc = torch.from_numpy((0.5 * a * (1.0 + ERF(a / math.sqrt(2)).astype(np.float32))).astype(np.float32)).to(x.device)
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
