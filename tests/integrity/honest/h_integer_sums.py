# row: honest
# reference: results/integer_sums.py
# runs: both
# what: adds 64-bit integers as unsigned ones
# base: line_kernel.py

BODY = r"""
  unsigned long long s = 0;
  for (int i = 0; i < width; ++i) { s += (unsigned long long)a[i]; b[i] = a[i] << 1; }
  place = (long long)s;
"""
NUMBER = "long long"

class ModelNew(nn.Module):
    def forward(self, x):
        y, places = self.lines(x, x.shape[-1])
        return places, y
