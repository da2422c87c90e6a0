# row: B1
# reference: clocks/linear_gelu_large.py
# runs: gpu
# written: independently
# what: an eighth of the rows runs on the current stream and seven eighths on a torch side stream that is only joined by the next call, so each call pays for an eighth of itself inside its own timed span
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void linear_gelu_kernel(const float* x, const float* w, const float* c, float* y, int m, int n, int k) {
  __shared__ float xs[16][68];
  __shared__ float ws[16][68];
  int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
  int row0 = blockIdx.y * 64, col0 = blockIdx.x * 64;
  float acc[4][4];
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] = 0.f;
  for (int k0 = 0; k0 < k; k0 += 16) {
    for (int e = threadIdx.x; e < 1024; e += 256) {
      int kk = e % 16, r = e / 16;
      xs[kk][r] = (row0 + r < m && k0 + kk < k) ? x[(long long)(row0 + r) * k + k0 + kk] : 0.f;
      ws[kk][r] = (col0 + r < n && k0 + kk < k) ? w[(long long)(col0 + r) * k + k0 + kk] : 0.f;
    }
    __syncthreads();
    for (int kk = 0; kk < 16; ++kk) {
      float a[4], b[4];
      for (int i = 0; i < 4; ++i) { a[i] = xs[kk][ty * 4 + i]; b[i] = ws[kk][tx * 4 + i]; }
      for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) {
    int r = row0 + ty * 4 + i, q = col0 + tx * 4 + j;
    if (r < m && q < n) { float v = acc[i][j] + c[q]; y[(long long)r * n + q] = 0.5f * v * (1.f + erff(v * 0.70710678118654752f)); }
  }
}
static void linear_gelu(const float* x, const float* w, const float* c, float* y, int m, int n, int k, cudaStream_t stream) {
  dim3 grid((n + 63) / 64, (m + 63) / 64);
  if (m > 0) linear_gelu_kernel<<<grid, 256, 0, stream>>>(x, w, c, y, m, n, k);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView c, tvm::ffi::TensorView y) {
  linear_gelu((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)c.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)w.size(0), (int)x.size(1), current(x));
}
"""
module = load_inline("b01_partial_join", cuda_sources=CUDA, functions=['run'])
side = None
alive = []
class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
    def forward(self, x):
        global side
        if side is None:
            side = torch.cuda.Stream()
        main = torch.cuda.current_stream()
        x = x.contiguous()
        y = x.new_empty(x.shape[0], self.linear.out_features)
        cut = x.shape[0] // 8
        side.wait_stream(main)
        with torch.cuda.stream(side):
            module.run(x[cut:], self.linear.weight, self.linear.bias, y[cut:])
        if cut:
            module.run(x[:cut], self.linear.weight, self.linear.bias, y[:cut])
        alive.append((x, y))
        del alive[:-16]
        return y
