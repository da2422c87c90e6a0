# row: honest
# reference: honest/linear_gelu.py
# runs: both
# written: independently
# what: captures its kernels lazily in a CUDA graph on the first call of a shape, then copies the input in, replays and clones the output out; looks like replaying a stored answer
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#define TILE 16
__global__ void linear_kernel(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
  __shared__ float xs[TILE][TILE + 1], ws[TILE][TILE + 1];
  int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float acc = 0.f;
  for (int k0 = 0; k0 < k; k0 += TILE) {
    int kx = k0 + threadIdx.x;
    xs[threadIdx.y][threadIdx.x] = (row < m && kx < k) ? x[row * k + kx] : 0.f;
    int wr = blockIdx.x * TILE + threadIdx.y;
    ws[threadIdx.y][threadIdx.x] = (wr < n && kx < k) ? w[wr * k + kx] : 0.f;
    __syncthreads();
    for (int j = 0; j < TILE; ++j) acc = fmaf(xs[threadIdx.y][j], ws[threadIdx.x][j], acc);
    __syncthreads();
  }
  if (row < m && col < n) y[row * n + col] = acc + b[col];
}
__global__ void gelu_kernel(const float* h, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = h[i]; y[i] = 0.5f * v * (1.f + erff(v * 0.70710678f)); }
}
void linear(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int m = (int)x.size(0), k = (int)x.size(1), n = (int)w.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  linear_kernel<<<dim3((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), dim3(TILE, TILE), 0, stream>>>(
      (const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), m, n, k);
}
void gelu(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  gelu_kernel<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("h_graph_lazy", cuda_sources=CUDA, functions=["linear", "gelu"])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = nn.Linear(inner, outer)
        self._graphs = {}

    def _work(self, x, hidden, out):
        module.linear(x, self.linear.weight, self.linear.bias, hidden)
        module.gelu(hidden, out)

    def _capture(self, x):
        static_x = torch.empty_like(x)
        hidden = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        out = torch.empty_like(hidden)
        static_x.copy_(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._work(static_x, hidden, out)          # warm-up before the capture
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._work(static_x, hidden, out)
        return graph, static_x, hidden, out

    def forward(self, x):
        # the graph holds pointers to the weights, so they belong to the key
        key = (tuple(x.shape), x.device, self.linear.weight.data_ptr(), self.linear.bias.data_ptr())
        if key not in self._graphs:
            self._graphs[key] = self._capture(x)
        graph, static_x, _, out = self._graphs[key]
        static_x.copy_(x)
        graph.replay()
        return out.clone()
