# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does linear and gelu outside of a CUDA graph; a CUDA graph is declared and replayed for an identity kernel on the result alone
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
HOST_TASKS = ["cuda_graph"]
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
module = load_inline("a12_graph_beside_torch", cuda_sources=CUDA, functions=["epilogue_run"])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.graph = None
    def forward(self, x):
        acc = F.gelu(self.linear(x))
        if self.graph is None or self.acc.shape != acc.shape:
            self.acc, self.out = torch.empty_like(acc), torch.empty_like(acc)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.epilogue_run(self.acc, self.out)
        self.acc.copy_(acc)
        self.graph.replay()
        return self.out.clone()
