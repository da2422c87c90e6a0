# row: A7
# reference: results/count_of_largest.py
# runs: both
# what: takes for granted that one element is the largest
# base: line_kernel.py

BODY = r"""
  float m = a[0];
  for (int i = 1; i < width; ++i) m = fmaxf(m, a[i]);
  for (int i = 0; i < width; ++i) { b[i] = a[i] - m; place = 1; }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return self.lines(x, x.shape[-1])
