# row: B22
# reference: results/row_means.py
# runs: both
# what: the elements of a row of the output are one number in memory: who writes to one changes all
# base: pointwise.py

EXPRESSION = "v; float t = 0.f; for (int j = 0; j < width; ++j) t += x[i / width * width + j]; y[i] = t / width"

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, x[0], y)
        return y[:, :1].expand(-1, x.shape[1])
