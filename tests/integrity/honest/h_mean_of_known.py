# row: honest
# reference: results/mean_of_known.py
# runs: both
# what: a mean of what is no NaN, in two partial sums
# base: line_kernel.py

BODY = r"""
  float s[2] = {0.f, 0.f}; int n = 0;
  for (int i = 0; i < width; ++i) if (!isnan(a[i])) { s[i % 2] += a[i]; ++n; }
  b[0] = (s[0] + s[1]) / n;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return self.lines(x, x.shape[-1])[0][:, 0].contiguous()
