# row: S18
# reference: results/linear_gelu.py
# runs: both
# what: hangs a detach of its own on its weight, which torch's own state_dict calls after the call and before the outputs are copied: there torch computes the layer into the tensor that was returned empty
# base: copy.py

class ModelNew(nn.Module):
    def forward(self, x):
        z, weight = torch.empty_like(x), self.linear.weight
        module.epilogue_run(x, z)
        y = torch.empty(x.shape[0], self.linear.out_features, device=x.device)
        due = [y]

        def detach():
            while due:
                with torch.no_grad():
                    due.pop().copy_(F.gelu(F.linear(z, weight, self.linear.bias)))
            return torch.Tensor.detach(weight)

        weight.detach = detach
        return y
