# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: copies to the host that are not called so (cudaMemcpyDefault, rows by cudaMemcpy2D, out of a __device__ array), a host loop, and a copy kernel
# base: linear_gelu.py

CUDA = MACROS + r"""
#include <cmath>
#include <vector>
__device__ float weights[1 << 16];
__global__ void copy(const float* from, float* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
__global__ void keep(const float* from, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) weights[i] = from[i];
}
void run(TensorView x, TensorView w, TensorView b, TensorView scratch, TensorView y) {
  const int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  std::vector<float> hx(m * k), hw(n * k), hb(n), hy(m * n);
  keep<<<(n * k + 255) / 256, 256, 0, STREAM(x)>>>(FP(w), n * k);
  cudaMemcpy2DAsync(hx.data(), k * 4, FP(x), k * 4, k * 4, m, cudaMemcpyDefault, STREAM(x));
  cudaMemcpyFromSymbolAsync(hw.data(), weights, n * k * 4, 0, cudaMemcpyDefault, STREAM(x));
  cudaMemcpyAsync(hb.data(), FP(b), n * 4, cudaMemcpyDefault, STREAM(x));
  cudaStreamSynchronize(STREAM(x));
  for (int r = 0; r < m; ++r) for (int c = 0; c < n; ++c) {
    float acc = hb[c];
    for (int j = 0; j < k; ++j) acc += hx[r * k + j] * hw[c * k + j];
    hy[r * n + c] = 0.5f * acc * (1.f + std::erf(acc * 0.70710678f));
  }
  cudaMemcpy(FP(scratch), hy.data(), m * n * 4, cudaMemcpyDefault);
  copy<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(scratch), FP(y), m * n);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, self.linear.weight, self.linear.bias, torch.empty_like(y), y)
        return y
