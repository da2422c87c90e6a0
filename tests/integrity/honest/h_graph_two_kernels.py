# row: honest
# reference: honest/add_relu_odd.py
# runs: both
# what: two small kernels with a buffer between them, warmed up on a side stream and captured in a CUDA graph; two inputs are copied in
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void add_kernel(const float* x, const float* y, float* h, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) h[i] = x[i] + 0.5f * y[i];
}
__global__ void relu_kernel(const float* h, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = fmaxf(h[i], 0.f);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView h, tvm::ffi::TensorView out) {
  int n = (int)x.numel();
  add_kernel<<<(n + 127) / 128, 128, 0, current(x)>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(), (float*)h.data_ptr(), n);
  relu_kernel<<<(n + 127) / 128, 128, 0, current(x)>>>((const float*)h.data_ptr(), (float*)out.data_ptr(), n);
}
"""
module = load_inline("h_graph_two_kernels", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def _capture(self, x, y):
        self.x, self.y = x.clone(), y.clone()
        self.hidden, self.out = torch.empty_like(x), torch.empty_like(x)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                module.run(self.x, self.y, self.hidden, self.out)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            module.run(self.x, self.y, self.hidden, self.out)

    def forward(self, x, y):
        if self.graph is None or self.x.shape != x.shape:
            self._capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
        return self.out.clone()
