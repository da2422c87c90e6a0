# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: the data is copied into variables of the device, which host code reads and writes by name; no copy leads to the host
# base: linear_gelu.py

CUDA = MACROS + r"""
#include <cmath>
__device__ float hx[128 * 96], hw[64 * 96], hb[64], hy[128 * 64];
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void run(TensorView x, TensorView w, TensorView b, TensorView scratch, TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  cudaMemcpyToSymbol(hx, x.data_ptr(), m * k * 4, 0, cudaMemcpyDeviceToDevice);
  cudaMemcpyToSymbol(hw, w.data_ptr(), n * k * 4, 0, cudaMemcpyDeviceToDevice);
  cudaMemcpyToSymbol(hb, b.data_ptr(), n * 4, 0, cudaMemcpyDeviceToDevice);
  for (int r = 0; r < m; ++r) for (int c = 0; c < n; ++c) {
    float acc = hb[c]; for (int j = 0; j < k; ++j) acc += hx[r * k + j] * hw[c * k + j];
    hy[r * n + c] = 0.5f * acc * (1.f + std::erf(acc * 0.70710678f));
  }
  cudaMemcpyFromSymbol(scratch.data_ptr(), hy, m * n * 4, 0, cudaMemcpyDeviceToDevice);
  epilogue<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(scratch), FP(y), m * n);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, torch.empty_like(y), y)
        return y
