# row: A7
# reference: results/integer_sums.py
# runs: both
# what: adds 64-bit integers in 32 bits
# base: line_kernel.py

BODY = r"""
  int s = 0;
  for (int i = 0; i < width; ++i) { s += (int)a[i]; b[i] = 2 * a[i]; }
  place = s;
"""
NUMBER = "long long"

class ModelNew(nn.Module):
    def forward(self, x):
        y, places = self.lines(x, x.shape[-1])
        return places, y
