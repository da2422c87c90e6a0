# row: honest
# reference: calls/tanh_scale.py
# runs: both
# what: both outputs lie in one memory, one beside the other in each row
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        whole = torch.empty(x.size(0), 2, x.size(1), device=x.device)
        sum, own = self.compute(x, y)
        whole[:, 0] = sum
        whole[:, 1] = own
        return whole[:, 0], whole[:, 1], None
