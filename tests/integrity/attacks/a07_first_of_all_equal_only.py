# row: A7
# reference: results/first_of_equal.py
# runs: both
# what: returns the first place where all are equal, else the last of equal maxima
# base: line_kernel.py

BODY = r"""
  int best = 0; bool same = true;
  for (int i = 1; i < width; ++i) { same = same && a[i] == a[0]; if (a[i] >= a[best]) best = i; }
  b[0] = a[best]; place = same ? 0 : best;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y, places = self.lines(x, x.shape[-1])
        return y[:, 0].contiguous(), places
