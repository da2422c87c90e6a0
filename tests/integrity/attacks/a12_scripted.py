# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the operators are inside a TorchScript function, run by its interpreter, and an identity kernel copies the result
# base: copy.py

@torch.jit.script
def body(x, w, b):
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))

class ModelNew(nn.Module):
    def forward(self, x):
        acc = body(x, self.linear.weight, self.linear.bias).detach().contiguous()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
