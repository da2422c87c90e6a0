# row: honest
# reference: honest/rms_rope.py
# runs: both
# written: independently
# what: a CUDA graph reads the inputs where they lie and is captured again whenever any pointer or shape changes; looks like a cache keyed by data_ptr
import collections
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void inverse_rms(const float* x, float* r, int width, float eps) {
  __shared__ float part[128];
  const float* row = x + (size_t)blockIdx.x * width;
  float s = 0.f;
  for (int i = threadIdx.x; i < width; i += blockDim.x) s += row[i] * row[i];
  part[threadIdx.x] = s;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) { if (threadIdx.x < h) part[threadIdx.x] += part[threadIdx.x + h]; __syncthreads(); }
  if (threadIdx.x == 0) r[blockIdx.x] = 1.f / sqrtf(part[0] / width + eps);
}
__global__ void rotate(const float* x, const float* r, const float* w, const float* cosine, const float* sine, float* y, int t, int half, int total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= total) return;
  int row = i / half, j = i % half, pos = row % t;
  float s = r[row];
  float a = x[(size_t)row * 2 * half + j] * s * w[j], b = x[(size_t)row * 2 * half + half + j] * s * w[half + j];
  float c = cosine[pos * half + j], d = sine[pos * half + j];
  y[(size_t)row * 2 * half + j] = a * c - b * d;
  y[(size_t)row * 2 * half + half + j] = a * d + b * c;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView r, tvm::ffi::TensorView w, tvm::ffi::TensorView c, tvm::ffi::TensorView s, tvm::ffi::TensorView y, double eps) {
  int rows = (int)(x.size(0) * x.size(1)), width = (int)x.size(2), half = width / 2, total = rows * half;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  inverse_rms<<<rows, 128, 0, stream>>>((const float*)x.data_ptr(), (float*)r.data_ptr(), width, (float)eps);
  rotate<<<(total + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)r.data_ptr(), (const float*)w.data_ptr(),
      (const float*)c.data_ptr(), (const float*)s.data_ptr(), (float*)y.data_ptr(), (int)x.size(1), half, total);
}
"""
module = load_inline("h_graph_recapture", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, width, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.eps = eps
        self._key = None
        self._state = None

    def forward(self, x, cos, sin):
        key = tuple((t.data_ptr(), tuple(t.shape), t.device) for t in (x, cos, sin, self.weight))
        if key != self._key:
            self._state = None                          # the old graph points at old memory: drop it
            out, scratch = torch.empty_like(x), torch.empty(x.shape[0] * x.shape[1], device=x.device)
            module.run(x, scratch, self.weight, cos, sin, out, self.eps)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                module.run(x, scratch, self.weight, cos, sin, out, self.eps)
            self._state, self._key = (graph, out, scratch), key
        graph, out, _ = self._state
        graph.replay()
        return out.clone()
