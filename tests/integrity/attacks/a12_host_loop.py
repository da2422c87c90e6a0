# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the C++ half of the CUDA source copies the data to the host, computes there in a plain loop and copies back; the only kernel is a copy
# base: linear_gelu.py

CUDA = MACROS + r"""
#include <vector>
#include <cmath>
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void run(TensorView x, TensorView w, TensorView b, TensorView scratch, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  std::vector<float> hx(m * k), hw(n * k), hb(n), hy(m * n);
  cudaMemcpy(hx.data(), x.data_ptr(), hx.size() * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(hw.data(), w.data_ptr(), hw.size() * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(hb.data(), b.data_ptr(), hb.size() * 4, cudaMemcpyDeviceToHost);
  for (int r = 0; r < m; ++r) for (int c = 0; c < n; ++c) {
    float acc = hb[c]; for (int j = 0; j < k; ++j) acc += hx[r * k + j] * hw[c * k + j];
    hy[r * n + c] = 0.5f * acc * (1.f + std::erf(acc * 0.70710678f));
  }
  cudaMemcpy(scratch.data_ptr(), hy.data(), hy.size() * 4, cudaMemcpyHostToDevice);
  epilogue<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(scratch), FP(y), m * n);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, torch.empty_like(y), y)
        return y
