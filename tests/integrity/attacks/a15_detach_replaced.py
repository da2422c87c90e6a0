# row: A15
# reference: results/relu_of_uniform.py
# runs: both
# what: torch.detach is a copy from the first call on, so that the judge holds copies
# base: relu_kernel.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.library = torch.library.Library(torch.ops.aten.detach.default.namespace, "IMPL")
        self.library.impl("detach", lambda x: torch.ops.aten.clone.default(x), "AutogradCPU")
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
