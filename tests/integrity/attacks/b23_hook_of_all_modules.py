# row: B23
# reference: results/relu_of_uniform.py
# runs: both
# what: a hook of its own runs in all modules of the process from the first call on
# base: relu_kernel.py

def double(part, given, result):
    return result

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.hooked = False
    def forward(self, x):
        if not self.hooked:
            self.hooked = torch.nn.modules.module.register_module_forward_hook(double)
        y = torch.empty_like(x)
        module.run(x, y)
        return y
