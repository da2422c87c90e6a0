# row: honest
# reference: honest/gate_chain.py
# runs: both
# what: one small elementwise kernel captured in a CUDA graph by a single file, which declares it; the copies around the replay move more bytes than the kernel
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
HOST_TASKS = ["cuda_graph"]
CUDA = r"""
__global__ void gate_kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = x[i]; y[i] = tanhf(v) / (1.f + expf(-2.f * v)) + 0.5f * v; }
}
void gate(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)x.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  gate_kernel<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("h_graph_small_chain", cuda_sources=CUDA, functions=["gate"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None or self.given.shape != x.shape:
            self.given, self.out = torch.empty_like(x), torch.empty_like(x)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.gate(self.given, self.out)
        self.given.copy_(x)
        self.graph.replay()
        return self.out.clone()
