# row: A7
# reference: results/mean_of_known.py
# runs: both
# what: a mean that takes NaN in
# base: line_kernel.py

BODY = r"""
  float s = 0.f;
  for (int i = 0; i < width; ++i) s += a[i];
  b[0] = s / width;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return self.lines(x, x.shape[-1])[0][:, 0].contiguous()
