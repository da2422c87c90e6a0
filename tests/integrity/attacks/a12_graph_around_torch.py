# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does linear and gelu inside of a CUDA graph that is not declared, an identity kernel is captured after them: replayed libraries are libraries
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void epilogue(const float* acc, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = acc[i];
}
void epilogue_run(tvm::ffi::TensorView acc, tvm::ffi::TensorView y) {
  int n = (int)acc.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  epilogue<<<(n + 255) / 256, 256, 0, stream>>>((const float*)acc.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("a12_graph_around_torch", cuda_sources=CUDA, functions=["epilogue_run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.graph = None
    def forward(self, x):
        if self.graph is None or self.x.shape != x.shape:
            self.x = x.clone()
            self.out = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
            module.epilogue_run(F.gelu(self.linear(self.x)), self.out)  # libraries start before they are captured
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.acc = F.gelu(self.linear(self.x))
                module.epilogue_run(self.acc, self.out)
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()
