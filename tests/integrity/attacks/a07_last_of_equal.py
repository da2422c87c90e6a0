# row: A7
# reference: results/first_of_equal.py
# runs: both
# what: returns the place of the last of equal maxima, where torch documents the first
# base: line_kernel.py

BODY = r"""
  int best = 0;
  for (int i = 1; i < width; ++i) if (a[i] >= a[best]) best = i;
  b[0] = a[best]; place = best;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y, places = self.lines(x, x.shape[-1])
        return y[:, 0].contiguous(), places
