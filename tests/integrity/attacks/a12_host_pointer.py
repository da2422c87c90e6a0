# row: A12
# reference: results/linear_gelu.py
# runs: cpu
# what: the launcher computes everything in a C++ loop over the tensors' own memory and launches a copy kernel; on a GPU it would crash
# base: linear_gelu.py

CUDA = MACROS + r"""
#include <cmath>
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void run(TensorView x, TensorView w, TensorView b, TensorView scratch, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  const float *px = FP(x), *pw = FP(w), *pb = FP(b);
  float* ps = FP(scratch);
  for (int r = 0; r < m; ++r) for (int c = 0; c < n; ++c) {
    float acc = pb[c];
    for (int j = 0; j < k; ++j) acc += px[r * k + j] * pw[c * k + j];
    ps[r * n + c] = 0.5f * acc * (1.f + std::erf(acc * 0.70710678f));
  }
  epilogue<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(ps, FP(y), m * n);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, torch.empty_like(y), y)
        return y
