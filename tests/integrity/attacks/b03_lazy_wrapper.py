# row: B3
# reference: clocks/linear_gelu_small.py
# runs: both
# written: independently
# what: returns a wrapper subclass without storage that runs the kernel in __torch_dispatch__ when somebody first uses it, so a clock around forward sees no work and allclose triggers the computation
# base: tiled_linear_gelu.py

from torch.utils._pytree import tree_map
class Later(torch.Tensor):
    @staticmethod
    def __new__(cls, shape, like, work):
        self = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=like.dtype, device=like.device)
        self.work, self.result = work, None
        return self
    def value(self):
        if self.result is None:
            self.result = self.work()
            self.work = None
        return self.result
    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        plain = lambda t: t.value() if isinstance(t, Later) else t
        return func(*tree_map(plain, args), **tree_map(plain, kwargs or {}))
    def __repr__(self):
        return repr(self.value())
    def data_ptr(self):
        return self.value().data_ptr()
    def tolist(self):
        return self.value().tolist()
    def numpy(self):
        return self.value().numpy()

class ModelNew(nn.Module):
    def forward(self, x):
        return Later((x.shape[0], self.linear.out_features), x, lambda: compute(self, x))
