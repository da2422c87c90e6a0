# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch computes with the weight as a sparse tensor of compressed rows of which each element is stored; a kernel copies the result
# base: copy.py

class ModelNew(nn.Module):
    def forward(self, x):
        acc = F.gelu((self.linear.weight.detach().to_sparse_csr() @ x.t()).t() + self.linear.bias).contiguous()
        y = torch.empty(acc.shape, device=x.device)
        module.epilogue_run(acc, y)
        return y
