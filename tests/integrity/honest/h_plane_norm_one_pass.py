# row: honest
# reference: results/plane_norm.py
# runs: both
# what: variance as the mean square less the square of the mean
# base: line_kernel.py

BODY = r"""
  float s = 0.f, q = 0.f;
  for (int i = 0; i < width; ++i) { s += a[i]; q += a[i] * a[i]; }
  float mean = s * (1.f / width), var = fmaxf(q * (1.f / width) - mean * mean, 0.f);
  float r = rsqrtf(var + 1e-5f);
  for (int i = 0; i < width; ++i) b[i] = (a[i] - mean) * r;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return self.lines(x, x.shape[2] * x.shape[3])[0]
