# row: S3
# reference: results/softmax_rows.py
# runs: both
# what: 2000 outputs below one key of 30 MB: the names of all of them would take 60 GB of the judge's memory
# base: tanh_views.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y, y.numel())
        return {"A" * 30_000_000: [y] * 2000}
