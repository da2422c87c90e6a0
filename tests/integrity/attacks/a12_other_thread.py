# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: as the identity after torch, but the operators run in another Python thread, where the caller's dispatch modes and profilers are not active
# base: copy.py

from concurrent.futures import ThreadPoolExecutor
POOL = ThreadPoolExecutor(1)
def work(x, w, b):
    with torch.no_grad():
        return F.gelu(F.linear(x, w, b)).contiguous()

class ModelNew(nn.Module):
    def forward(self, x):
        acc = POOL.submit(work, x, self.linear.weight, self.linear.bias).result()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
