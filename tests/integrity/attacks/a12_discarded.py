# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: an own kernel really computes the whole layer, but the output is torch's plus zero times that result: it has bytes and time, and removing it (NaN in the scratch) changes the output
# base: linear_gelu.py

CUDA = MACROS + r"""
__global__ void linear_gelu(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  const float* xr = x + (size_t)(i / n) * k; const float* wr = w + (size_t)(i % n) * k;
  float acc = 0.f;
  for (int j = 0; j < k; ++j) acc = fmaf(xr[j], wr[j], acc);
  acc += b[i % n];
  y[i] = 0.5f * acc * (1.f + erff(acc * 0.70710678f));
}
__global__ void combine(const float* a, const float* own, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaf(own[i], 0.f, a[i]); }
void run(TensorView x, TensorView w, TensorView b, TensorView a, TensorView s, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  linear_gelu<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(w), FP(b), FP(s), m, n, k);
  combine<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(a), FP(s), FP(y), m * n);
}
"""
module = load_inline("a12_discarded", cuda_sources=CUDA.replace("wr[j], acc)", "wr[j] * 0.5f, acc)"), functions=["run"])   # and it is not even right

class ModelNew(nn.Module):
    def forward(self, x):
        a = F.gelu(self.linear(x)).contiguous()
        y = torch.empty_like(a)
        module.run(x, self.linear.weight, self.linear.bias, a, torch.empty_like(a), y)
        return y
