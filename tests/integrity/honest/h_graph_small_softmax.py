# row: honest
# reference: honest/softmax_rows.py
# runs: both
# what: a row softmax captured in a CUDA graph without a word about it; input copied in, result copied out into fresh memory
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float part[128];
  const float* a = x + (size_t)blockIdx.x * cols;
  int t = threadIdx.x;
  float m = -INFINITY, s = 0.f;
  for (int i = t; i < cols; i += 128) m = fmaxf(m, a[i]);
  part[t] = m;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) { if (t < k) part[t] = fmaxf(part[t], part[t + k]); __syncthreads(); }
  m = part[0];
  __syncthreads();
  for (int i = t; i < cols; i += 128) s += expf(a[i] - m);
  part[t] = s;
  __syncthreads();
  for (int k = 64; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  for (int i = t; i < cols; i += 128) y[(size_t)blockIdx.x * cols + i] = expf(a[i] - m) / part[0];
}
void softmax(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  softmax_kernel<<<(int)x.size(0), 128, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(1));
}
"""
module = load_inline("h_graph_small_softmax", cuda_sources=CUDA, functions=["softmax"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = {}

    def forward(self, x):
        if x.shape not in self.kept:
            given, out, graph = torch.empty_like(x), torch.empty_like(x), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                module.softmax(given, out)
            self.kept[x.shape] = given, out, graph
        given, out, graph = self.kept[x.shape]
        given.copy_(x, non_blocking=True)
        graph.replay()
        return torch.empty_like(out).copy_(out)
