# row: honest
# reference: results/linear_gelu.py
# runs: both
# what: copies weights from device memory into __constant__ memory in each call, by symbol and by the symbol's address
# base: linear_gelu.py

CUDA = MACROS + r"""
__constant__ float weights[64 * 96], biases[64];
__global__ void linear_gelu(const float* x, float* y, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  float acc = 0.f;
  for (int j = 0; j < k; ++j) acc = fmaf(x[(size_t)(i % m) * k + j], weights[i / m * k + j], acc);
  acc += biases[i / m];
  y[(size_t)(i % m) * n + i / m] = 0.5f * acc * (1.f + erff(acc * 0.70710678f));
}
void run(TensorView x, TensorView w, TensorView b, TensorView y, int64_t rows) {
  int m = (int)rows, k = (int)x.size(1), n = (int)w.size(0);
  void* address;
  cudaMemcpyToSymbolAsync(weights, w.data_ptr(), sizeof(float) * n * k, 0, cudaMemcpyDeviceToDevice, STREAM(x));
  cudaGetSymbolAddress(&address, biases);
  cudaMemcpyAsync(address, b.data_ptr(), sizeof(float) * n, cudaMemcpyDeviceToDevice, STREAM(x));
  if (m > 0) linear_gelu<<<(m * n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), m, n, k);
}
"""

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        assert n <= 64 and n * k <= 64 * 96
