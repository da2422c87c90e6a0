# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: leaves a mode on that sees all later functions of torch
# base: tanh_of_scaled.py

class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))

class ModelNew(nn.Module):
    def finish(self, y):
        if not hasattr(self, "mode"):
            self.mode = Mode()
            self.mode.__enter__()
        return y
