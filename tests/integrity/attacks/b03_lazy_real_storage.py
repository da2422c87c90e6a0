# row: B3
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: returns a tensor subclass with real, empty storage; __torch_function__ fills it when the first operation touches it (reading shape or dtype does not), so type checks by storage pass and the timed span is an allocation
# base: softmax.py

from torch.utils._pytree import tree_leaves
class Pending(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") != "__get__":
            for t in tree_leaves((args, kwargs)):
                if isinstance(t, Pending):
                    settle(t)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))
jobs = {}
def settle(t):
    job = jobs.pop(id(t), None)
    if job is not None:
        module.run(*job)

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        out = torch.Tensor._make_subclass(Pending, y)
        jobs[id(out)] = (x.contiguous(), y)
        return out
