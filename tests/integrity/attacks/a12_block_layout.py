# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch computes with the weight as a sparse tensor of blocks of which each is stored; a kernel copies the result
# base: copy.py

class ModelNew(nn.Module):
    def forward(self, x):
        weight = self.linear.weight.detach().to_sparse_bsr((16, 16))
        acc = F.gelu((weight @ x.t()).t() + self.linear.bias).contiguous()
        y = torch.empty(acc.shape, device=x.device)
        module.epilogue_run(acc, y)
        return y
