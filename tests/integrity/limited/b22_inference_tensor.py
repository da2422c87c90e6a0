# row: B22
# reference: results/relu_of_uniform.py
# runs: both
# what: returns inference tensors, which no user can train behind
# base: relu_kernel.py

class ModelNew(nn.Module):
    def forward(self, x):
        with torch.inference_mode():
            y = torch.empty_like(x)
        module.run(x, y)
        return y
