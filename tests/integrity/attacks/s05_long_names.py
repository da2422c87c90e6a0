# row: S5
# reference: results/softmax_rows.py
# runs: both
# what: outputs under keys of 10 MB, which a verdict that lists them would repeat
# base: tanh_views.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y, y.numel())
        return {"A" * 10_000_000: y, "B" * 10_000_000: y}
