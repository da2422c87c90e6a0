# row: A12
# reference: results/first_column.py
# runs: cpu
# what: nearly all of the reference is a copy; it is made by the copies around a CUDA graph whose kernel changes one column in place, in the hope that such copies are not counted
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void column(float* x, int rows, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows) { float v = x[i * cols]; x[i * cols] = v / (1.f + expf(-v)); }
}
void run(tvm::ffi::TensorView x) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  column<<<1, 64, 0, stream>>>((float*)x.data_ptr(), (int)x.size(0), (int)x.size(1));
}
"""
module = load_inline("a12_graph_copy_is_work", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None
    def forward(self, x):
        if self.graph is None or self.x.shape != x.shape:
            self.x = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.run(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.x.clone()
