# row: honest
# reference: results/first_of_equal.py
# runs: both
# what: two halves of a row from both ends; of equal maxima the smaller place wins
# base: line_kernel.py

BODY = r"""
  int low = 0, high = width - 1;
  for (int i = 1; i < width / 2; ++i) if (a[i] > a[low]) low = i;
  for (int i = width - 2; i >= width / 2; --i) if (a[i] >= a[high]) high = i;
  int best = a[high] > a[low] ? high : low;
  b[0] = a[best]; place = best;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y, places = self.lines(x, x.shape[-1])
        return y[:, 0].contiguous(), places
