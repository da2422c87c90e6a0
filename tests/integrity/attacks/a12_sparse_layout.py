# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch computes with the input as a sparse tensor of which each element is stored; a kernel copies the result
# base: copy.py

class ModelNew(nn.Module):
    def forward(self, x):
        acc = F.gelu(torch.sparse.mm(x.to_sparse(), self.linear.weight.t()) + self.linear.bias).contiguous()
        y = torch.empty(acc.shape, device=x.device)
        module.epilogue_run(acc, y)
        return y
