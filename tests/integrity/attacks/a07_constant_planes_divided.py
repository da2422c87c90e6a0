# row: A7
# reference: results/plane_norm.py
# runs: both
# what: adds the norm's epsilon to variances above zero only, and guards planes of zeros
# base: line_kernel.py

BODY = r"""
  float s = 0.f, q = 0.f;
  for (int i = 0; i < width; ++i) { s += a[i]; q += a[i] * a[i]; }
  float mean = s * (1.f / width), var = fmaxf(q * (1.f / width) - mean * mean, 0.f);
  float r = var > 1e-13f ? rsqrtf(var + 1e-5f) : mean == 0.f ? 0.f : rsqrtf(0.f * var);
  for (int i = 0; i < width; ++i) b[i] = (a[i] - mean) * r;
"""

class ModelNew(nn.Module):
    def forward(self, x):
        return self.lines(x, x.shape[2] * x.shape[3])[0]
