# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: a tensor subclass, made by names put together at run time, computes everything when torch takes an alias of it; a kernel copies the result
# base: copy.py

def _dispatch(cls, func, types, args=(), kwargs=None):
    one = args[0]
    return F.gelu(F.linear(one.x, one.w, one.b))
Lazy = type("Lazy", (torch.Tensor,), {"__torch_dispXtch__".replace("X", "a"): classmethod(_dispatch)})
def work(x, w, b):
    one = torch.Tensor._make_wrapper_subclass(Lazy, (x.shape[0], w.shape[0]), dtype=x.dtype, device=x.device)
    one.x, one.w, one.b = x, w, b
    return torch.ops.aten.alias(one)

class ModelNew(nn.Module):
    def forward(self, x):
        a = work(x, self.linear.weight, self.linear.bias)
        y = torch.empty_like(a)
        module.epilogue_run(a, y)
        return y
